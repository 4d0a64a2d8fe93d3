"""Routes `/api/nemorl`: the live curve of a training, and the Sharpe ratio curve."""

from datetime import datetime
from typing import Any

from nvtrader_pipelines.components.document import Document, row_model, rows_of
from nvtrader_pipelines.notifications.home_status import running_runs
from nvtrader_pipelines.service.api.context import Shared, router
from nvtrader_pipelines.storage.tables import RATIO_CURVE
from nvtrader_pipelines.storage.training_curve_file import CurvePoint

routes = router("nemorl", "/api/nemorl")


class RatioPoint(row_model(RATIO_CURVE.schema)):
    """Completed run or search trial on the Sharpe ratio curve."""


class ActiveTraining(Document):
    """Training in progress."""

    run_id: str
    partition_key: str
    state: str  # stage and its last message
    at: datetime  # of that message
    others: tuple[str, ...]  # ids of further runs in progress


class TrainingStatus(Document):
    """Training in progress, and its learning curve."""

    active: ActiveTraining | None  # null unless a run is in progress
    curve: tuple[CurvePoint, ...]  # at most 200 points, of the fold and seed that reported last


@routes.get("/status", response_model=TrainingStatus)
def status(shared: Shared) -> Any:
    """Training in progress with its learning curve of at most 200 points."""
    return shared.answers.get(("nemorl/status",), lambda: read_training(shared))


@routes.get("/curve", response_model=tuple[CurvePoint, ...])
def curve(shared: Shared) -> Any:
    """Points of the learning curve of the training in progress."""
    return shared.answers.get(("nemorl/curve",), lambda: read_training(shared).curve)


def read_training(shared: Shared) -> TrainingStatus:
    """Read the training that reported last."""
    running = sorted(running_runs(shared.store), key=lambda run: run.at, reverse=True)
    if not running:
        return TrainingStatus(active=None, curve=())
    run, *others = running
    active = ActiveTraining.of(run, others=tuple(other.run_id for other in others))
    return TrainingStatus(active=active, curve=run.curve)


@routes.get("/ratio-curve", response_model=tuple[RatioPoint, ...])
def ratio_curve(shared: Shared) -> Any:
    """Sharpe ratio and maximum drawdown of every completed run and search trial, oldest first."""

    def read() -> object:
        return rows_of(RatioPoint, shared.store.tables.read(RATIO_CURVE).sort("finished_at"))

    return shared.answers.get(("nemorl/ratio-curve",), read)
