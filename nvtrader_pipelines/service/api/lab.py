"""Routes of the lab: rows of a run in pages or thinned for drawing, and previews of an experiment."""

from typing import Annotated, Self

from fastapi import Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.runs.preview import preview_environment
from nvtrader_pipelines.runs.row_pages import (
    ActionRow,
    EpisodeRow,
    EquityRow,
    RewardRow,
    RowPage,
    TrajectoryRow,
    row_page,
    thinned_rows,
)
from nvtrader_pipelines.runs.run_queries import find_run_by_name
from nvtrader_pipelines.service.api.context import Context, Shared, router
from nvtrader_pipelines.service.api.problems import refusing
from nvtrader_pipelines.service.api.rl import SPEC_BODY, PostedSpec
from nvtrader_pipelines.service.documents.preview_facts import (
    ObservationPreview,
    RewardPreview,
    observation_preview,
    reward_preview,
)
from nvtrader_pipelines.service.operations.arguments import RunName
from nvtrader_pipelines.storage.errors import ConflictError

routes = router("rl", "/rl")
Name = Annotated[str, Field(max_length=200)]
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]
Steps = Annotated[int, Query(ge=1, le=250, description="steps at most")]


class AccountRows(BaseModel):
    """Rows to answer with: of an account, in pages or thinned for drawing."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    policy: Name | None = Field(None, description="account: the experiment's ensemble, a seed or a baseline")
    kind: Name | None = Field(None, description="policy, ensemble or baseline")
    fold: Number | None = None
    limit: int = Field(1_000, ge=1, le=10_000, description="rows of a page")
    after: int | None = Field(None, ge=0, le=2**53, description="`next` of the page before")
    points: int | None = Field(None, ge=50, le=5_000, description="rows of a curve, thinned, instead of a page")

    @model_validator(mode="after")
    def _require_one_form(self) -> Self:
        if self.points is not None and self.after is not None:
            raise ValueError("rows are thinned by points or read in pages by after, but both are given; drop one")
        return self


class TermRows(AccountRows):
    """The same of a reward term."""

    term: Name | None = None


class StepRows(AccountRows):
    """The same of trajectories."""

    phase: Name | None = Field(None, description="train, test, replay or forward")
    seed: Number | None = None
    episode: Number | None = None


@routes.get("/runs/{run}/equity", response_model=RowPage[EquityRow])
def equity(shared: Shared, run: RunName, query: Annotated[AccountRows, Query()]) -> Response:
    """Sessions of a run's accounts: equity, return, drawdown, turnover and cost."""
    return _answer(shared, run, EquityRow, query)


@routes.get("/runs/{run}/trajectories", response_model=RowPage[TrajectoryRow])
def trajectories(shared: Shared, run: RunName, query: Annotated[StepRows, Query()]) -> Response:
    """Steps of a run's accounts, in training and in tests; thinned ones lack `action` and `info`."""
    return _answer(shared, run, TrajectoryRow, query)


@routes.get("/runs/{run}/reward-decomposition", response_model=RowPage[RewardRow])
def reward_decomposition(shared: Shared, run: RunName, query: Annotated[TermRows, Query()]) -> Response:
    """Terms of the rewards of a run's accounts."""
    return _answer(shared, run, RewardRow, query)


@routes.get("/runs/{run}/actions", response_model=RowPage[ActionRow])
def actions(shared: Shared, run: RunName, query: Annotated[AccountRows, Query()]) -> Response:
    """Decisions of a run's accounts: weights wanted and executed, and trades; thinned by the size of trades."""
    return _answer(shared, run, ActionRow, query)


@routes.get("/runs/{run}/episodes", response_model=RowPage[EpisodeRow])
def episodes(shared: Shared, run: RunName, query: Annotated[StepRows, Query()]) -> Response:
    """Summaries of a run's episodes: steps, reward, sessions, equity, drawdown and whether it was terminated."""
    return _answer(shared, run, EpisodeRow, query)


@routes.post("/lab/preview-reward", openapi_extra=SPEC_BODY)
def preview_reward(shared: Shared, posted: PostedSpec, steps: Steps = 20) -> RewardPreview:
    """Step an experiment's environment on its market and show the rewards by term; nothing is trained or stored."""
    with refusing(ConflictError):
        return reward_preview(preview_environment(shared.store, posted, steps))


@routes.post("/lab/preview-observation", openapi_extra=SPEC_BODY)
def preview_observation(shared: Shared, posted: PostedSpec, steps: Steps = 20) -> ObservationPreview:
    """Step an experiment's environment on its market and show the observations; nothing is trained or stored."""
    with refusing(ConflictError):
        return observation_preview(preview_environment(shared.store, posted, steps))


def _answer(shared: Context, name: str, model: type[Document], query: AccountRows) -> Response:
    """Answer with rows, which are not kept: they are many, and read in a fraction of a second."""
    run = find_run_by_name(shared.store.ledger, name)
    equal = query.model_dump(exclude={"limit", "after", "points"}, exclude_none=True)
    if query.points is None:
        page = row_page(shared.store, model, run, equal, query.limit, query.after or 0)
    else:
        page = thinned_rows(shared.store, model, run, equal, query.points)
    return Response(page.model_dump_json(), media_type="application/json")
