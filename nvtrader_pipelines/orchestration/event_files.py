"""TensorBoard event files with training curves, if $NVTRADER_TENSORBOARD names a folder."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg

from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.orchestration.progress_log import Watch

VARIABLE = "NVTRADER_TENSORBOARD"  # no field of an experiment: a picture of a training is not part of its identity


class EventFiles(dg.ConfigurableResource):
    """Folder of TensorBoard's event files; empty to write none."""

    folder: str = ""

    @contextmanager
    def live_curves(self, partition_key: str) -> Iterator[Watch]:
        """Yield the callback that writes the points of trainings, in a folder per fold and seed.

        Raises:
            ValueError: if there is a folder, but TensorBoard is not installed.
        """
        writer_class = _writer_class() if self.folder else None
        writers: dict[str, Any] = {}  # by fold and seed

        def log(step: Progress) -> None:
            if writer_class is None or step.stage != "train.step" or step.fold is None or step.seed is None:
                return
            name = f"fold-{step.fold}-seed-{step.seed}"
            if name not in writers:
                writers[name] = writer_class(str(Path(self.folder).expanduser() / partition_key / name))
            for metric, value in step.metrics.items():
                writers[name].add_scalar(metric, value, step.timesteps)
            writers[name].flush()

        try:
            yield log
        finally:
            for writer in writers.values():
                writer.close()


def _writer_class() -> Any:
    try:
        return importlib.import_module("tensorboard.summary").Writer
    except ImportError as error:
        raise ValueError(
            f"${VARIABLE} needs TensorBoard, which is not installed: "
            "pip install 'nvtrader-pipelines[tensorboard]', or unset it"
        ) from error
