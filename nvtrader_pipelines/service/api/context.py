"""What the routes share: the store, the kept answers, and who acts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute

from nvtrader_pipelines.service.api.answers import Answers
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    from nvtrader_pipelines.orchestration.job_runs import JobRuns


@dataclass(frozen=True)
class Context:
    """Store of the home, answers that are kept, and the name that decisions are recorded under."""

    store: Store
    by: str
    answers: Answers = field(init=False)
    next_runs: dict[str, datetime | None] = field(init=False, default_factory=dict)  # of schedules, as read last

    def __post_init__(self) -> None:
        object.__setattr__(self, "answers", Answers(self.store.home))

    @cached_property
    def job_runs(self) -> "JobRuns":
        """Runs in Dagster."""
        from nvtrader_pipelines.orchestration.job_runs import JobRuns  # imports Dagster: a second

        return JobRuns(self.store)

    @property
    def opened(self) -> OpenHome:
        """Home with the person who acts."""
        return OpenHome(self.store, self.by, is_quiet=True, is_served=True)

    @property
    def home(self) -> Home:
        """Home that is served."""
        return self.store.home


def _context(request: Request) -> Context:
    return request.app.state.context


Shared = Annotated[Context, Depends(_context)]


class Route(APIRoute):
    """Route whose summary is the first line of its docstring."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        summary, _, rest = (endpoint.__doc__ or "").partition("\n")
        super().__init__(path, endpoint, **{**options, "summary": summary, "description": rest.strip() or summary})


def router(tag: str, prefix: str = "") -> APIRouter:
    """Make the router of a group of routes."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=Route)
