"""Progress of a run: main steps to Dagster's log, every step to a callback in this process."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import dagster as dg

from nvtrader_pipelines.experiments.progress import Progress, format_time_left

Watch = Callable[[Progress], None]
FREQUENT_STAGES = ("train.step", "evaluate.step")  # too frequent for an event log
SECONDS_BETWEEN_LINES = 15.0  # of frequent stages


@dataclass(frozen=True)
class ProgressLog:
    """Resource that reports progress steps; it needs no configuration."""

    watch: Watch | None = None

    def reporter(self, context: dg.AssetExecutionContext | dg.OpExecutionContext, *more: Watch) -> Watch:
        """Return the callback that reports a run's progress to a Dagster step and `more` callbacks."""
        watches = (*more, self.watch) if self.watch else more
        began = monotonic()
        last = began

        def report(step: Progress) -> None:
            nonlocal last
            if step.stage not in FREQUENT_STAGES and (step.stage != "train.checkpoint" or step.timesteps is not None):
                context.log.info(step.message)
            elif step.stage in FREQUENT_STAGES and monotonic() - last >= SECONDS_BETWEEN_LINES:
                last = monotonic()
                context.log.info("%s%s", step.message, _time_left(step, last - began))
            for watch in watches:
                watch(step)

        return report


def _time_left(step: Progress, elapsed: float) -> str:
    """Share and time left of a walk; a training's message has both."""
    if step.stage != "evaluate.step" or not step.share:
        return ""
    return f" ({step.share:.0%}, {format_time_left(step.share, elapsed)})"
