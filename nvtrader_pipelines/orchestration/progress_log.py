"""Progress of a run: main steps to Dagster's log, every step to a callback in this process."""

from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from nvtrader_pipelines.experiments.progress import Progress

Watch = Callable[[Progress], None]
UNLOGGED_STAGES = ("train.step", "evaluate.step")  # too frequent for an event log


@dataclass(frozen=True)
class ProgressLog:
    """Resource that reports progress steps; it needs no configuration."""

    watch: Watch | None = None

    def reporter(self, context: dg.AssetExecutionContext | dg.OpExecutionContext) -> Watch:
        """Return the callback that reports the progress of a run within a Dagster step."""

        def report(step: Progress) -> None:
            if step.stage not in UNLOGGED_STAGES and (step.stage != "train.checkpoint" or step.timesteps is not None):
                context.log.info(step.message)
            if self.watch is not None:
                self.watch(step)

        return report
