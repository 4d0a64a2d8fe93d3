"""Documents of the comparison of a run's guards."""

from pathlib import Path

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.evaluation.guard_comparison import GuardReadiness, GuardSlice
from nvtrader_pipelines.evaluation.guard_telemetry import GuardTelemetry
from nvtrader_pipelines.evaluation.intervals import Interval
from nvtrader_pipelines.runs.guard_walk import GuardWalk


class GuardsDocument(Document):
    """Guards of a run against none and a baseline, on slices of its tests that do not overlap."""

    readiness: GuardReadiness
    reason: str
    experiment: str
    partition_key: str
    run_id: str
    n_sessions: int  # in a slice
    baseline: str
    is_best_baseline: bool  # of the run's verdict, known in hindsight only; false: 1/N, since the verdict has none
    telemetry: GuardTelemetry  # of the guarded account over all slices
    return_difference: Interval  # mean over slices of the guarded account's return less the unguarded one's, 95 %
    drawdown_difference: Interval  # the same of the deepest drawdown of each slice
    baseline_return_difference: Interval  # guarded less baseline
    baseline_drawdown_difference: Interval
    slices: tuple[GuardSlice, ...]  # in time order
    picture: Path | None


def guards_document(walk: GuardWalk, picture: Path | None) -> GuardsDocument:
    """Describe a comparison of guards."""
    own = {"n_sessions": walk.n_sessions, "baseline": walk.baseline, "is_best_baseline": walk.is_best_baseline}
    return GuardsDocument.of(walk.run, picture=picture, **own, **vars(walk.comparison))
