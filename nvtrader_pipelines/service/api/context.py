"""What the routes share: the store, the kept answers, and who acts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from nvtrader_pipelines.service.api.answers import Answers, answer_with
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

    def answer(
        self, name: str, read: Callable[[], object], *sources: tuple[Path, ...], of: tuple[object, ...] = ()
    ) -> Response:
        """Answer with what `read` returns, kept until a source changes; without one, it is not kept.

        Args:
            name: name of the answer.
            read: returns a document, or rows.
            sources: groups of files and folders that it comes from.
            of: arguments that it depends on.
        """
        paths = [path for group in sources for path in group]
        return self.answers.get((name, *of), paths, read) if paths else answer_with(read())

    @property
    def runs(self) -> tuple[Path, ...]:
        """Files of runs and their figures."""
        return self.home.ledger, self.home.catalog, self.home.training_curves

    @property
    def desk(self) -> tuple[Path, ...]:
        """Files of accounts, plans and the kill switch."""
        return self.home.audit, self.home.runtime, self.home.accounts, self.home.compliance

    @property
    def policies(self) -> tuple[Path, ...]:
        """Files of trained policies."""
        return (self.home.policies,)

    @property
    def searches(self) -> tuple[Path, ...]:
        """Files of search sessions."""
        return self.home.research_sessions, self.home.research_policies

    @property
    def running_searches(self) -> tuple[str, ...]:
        """Sessions in progress; no file changes when the process of one is killed."""
        return tuple(folder.session_id for folder in self.store.searches.folders() if folder.is_running)

    @property
    def experiments(self) -> tuple[Path, ...]:
        """Files of experiments and of the market."""
        return self.home.experiments, self.home.market_file, self.home.promotion_file


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
