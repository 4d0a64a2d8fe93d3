"""What a run says on its way: what matters to Dagster's log, every step to whoever watches in this process."""

from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from nvtrader_pipelines.experiments.progress import Progress

Watch = Callable[[Progress], None]
UNLOGGED_STAGES = ("train.step", "evaluate.step")  # too many for an event log


@dataclass(frozen=True)
class ProgressLog:
    """A resource that asks for no configuration."""

    watch: Watch | None = None

    def to(self, context: dg.AssetExecutionContext | dg.OpExecutionContext) -> Watch:
        """What takes the steps of a run inside a step of Dagster's."""

        def tell(step: Progress) -> None:
            if step.stage not in UNLOGGED_STAGES and (step.stage != "train.checkpoint" or step.timesteps is not None):
                context.log.info(step.message)
            if self.watch is not None:
                self.watch(step)

        return tell
