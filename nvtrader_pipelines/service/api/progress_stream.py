"""Progress of runs as server-sent events: one reader a run, however many clients follow it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, NamedTuple

from fastapi import Depends, Header, Path, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.orchestration.job_states import JobRun
from nvtrader_pipelines.research.recorded_session import read_session
from nvtrader_pipelines.research.session_progress import SessionProgress
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.service.api.context import Context, Shared, router
from nvtrader_pipelines.service.api.problems import refusing
from nvtrader_pipelines.storage.errors import NotFoundError
from nvtrader_pipelines.storage.research_files import SessionFolder

routes = router("rl")
POLL_SECONDS = 0.25
ENDS = ("done", "error")  # stages
TaskId = Annotated[str, Path(max_length=64, pattern=r"^[0-9A-Za-z-]+$")]


class Step(NamedTuple):
    """Progress message with its number."""

    number: int
    progress: Progress


class News(NamedTuple):
    """New messages of a task, and whether they are the last."""

    steps: list[Step]
    is_last: bool


class Streams:
    """Streams of all tasks that anybody follows; they end when the server is asked to end."""

    def __init__(self, shared: Context) -> None:
        self._shared, self._streams = shared, dict[str, _Stream]()
        self.stop = asyncio.Event()

    def end(self) -> None:
        """End all streams; safe in a signal handler."""
        self.stop.set()
        for stream in self._streams.values():
            stream.wake()

    async def follow(self, task_id: str, after: int) -> AsyncIterator[Step]:
        """Yield the messages of a task with a number above `after`, then those to come, up to its end."""
        stream = self._streams.get(task_id)
        if stream is None:
            stream = self._streams[task_id] = _Stream(
                lambda number: read_news(self._shared, task_id, number), self.stop
            )
        stream.n_followers += 1
        try:
            async for step in stream.follow(after):
                yield step
        finally:
            stream.n_followers -= 1
            if not stream.n_followers and self._streams.get(task_id) is stream:
                del self._streams[task_id]
                stream.cancel()


class _Stream:
    """Messages of a task so far, and a reader that adds those to come."""

    def __init__(self, read: Callable[[int], News], stop: asyncio.Event) -> None:
        self._read, self._stop, self.n_followers = read, stop, 0
        self._steps: list[Step] = []
        self._is_ended, self._news = False, asyncio.Event()
        self._reader = asyncio.create_task(self._poll())

    def cancel(self) -> None:
        """End the reader."""
        self._reader.cancel()

    async def follow(self, after: int) -> AsyncIterator[Step]:
        """Yield messages with a number above `after` as they come."""
        position = 0
        while True:
            news = self._news  # taken before the messages are looked at, so that none is missed
            for step in self._steps[position:]:
                if step.number > after:
                    yield step
            position = len(self._steps)
            if self._stop.is_set():
                return
            if self._is_ended and news is self._news:
                if self._reader.done() and not self._reader.cancelled():
                    self._reader.result()  # raises what the reader raised
                return
            await news.wait()

    async def _poll(self) -> None:
        try:
            while not (self._stop.is_set() or self._is_ended):
                news = await asyncio.to_thread(self._read, self._steps[-1].number if self._steps else 0)
                self._steps += news.steps
                self._is_ended = news.is_last
                if news.steps or news.is_last:
                    self.wake()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), POLL_SECONDS)
        finally:  # a reader that fails ends its followers, too
            self._is_ended = True
            self.wake()

    def wake(self) -> None:
        """Let the followers look again."""
        woken, self._news = self._news, asyncio.Event()
        woken.set()


def _streams(request: Request) -> Streams:
    return request.app.state.streams


def _require_run(shared: Shared, task_id: TaskId) -> None:
    """Answer 404 before the stream begins, unless Dagster has such a run."""
    with refusing(NotFoundError):
        shared.job_runs.run(task_id)


def read_news(shared: Context, task_id: str, after: int) -> News:
    """Read the messages of a task above a number.

    One `done` or `error` is the last, once its Dagster run has ended: a run has several parts that end.
    """
    state = shared.job_runs.run(task_id)  # before the messages, so that none comes after the end
    read = read_search if state.job == "autoresearch" else read_run
    steps = read(shared, task_id, after)
    under_way = [step for step in steps if step.progress.stage not in ENDS]
    if not state.is_finished:
        return News(under_way, is_last=False)
    end = "done" if state.status == "SUCCESS" else "error"
    if steps and steps[-1].progress.stage == end:
        return News([*under_way, steps[-1]], is_last=True)
    number = max([after, *(step.number for step in steps)]) + 1
    return News([*under_way, Step(number, end_of(shared, state))], is_last=True)


def read_run(shared: Context, task_id: str, after: int) -> list[Step]:
    """Read messages of a training, an evaluation or a replay from the ledger."""
    rows = shared.store.ledger.task_events(task_id, after).rows(named=True)
    return [Step(row.pop("id"), Progress.model_validate(row | {"metrics": json.loads(row["metrics"])})) for row in rows]


def read_search(shared: Context, task_id: str, after: int) -> list[Step]:
    """Read lines of a search session's journal as messages."""
    folder = SessionFolder.of(shared.home, shared.job_runs.session_id(task_id))
    if not folder.settings.exists() or len(folder.read_lines()) <= after:
        return []
    recorded = read_session(folder)
    progress = SessionProgress(replace(recorded, lines=()))
    steps = []
    for number, line in enumerate(recorded.lines, start=1):
        progress.add(line)
        budget = recorded.session.spec.budget
        message = Progress(
            task_id=task_id,
            run_id=folder.session_id,
            stage="start" if number == 1 else "evaluate.step",
            message=progress.sentence(line),
            timestamp=now(),
            share=min(1.0, progress.n_trials / budget) if budget else None,
        )
        steps.append(Step(number, message))
    return steps[after:]


def end_of(shared: Context, state: JobRun) -> Progress:
    """Last message of a run that left none, such as one with nothing to do, or that failed before it began."""
    is_done, at = state.status == "SUCCESS", state.ended_at or now()
    reason = "the run has ended" if is_done else shared.job_runs.failure(state.run_id)
    return Progress(
        task_id=state.run_id, run_id=state.run_id, stage="done" if is_done else "error", message=reason, timestamp=at
    )


@routes.get("/chat/stream/{task_id}", response_class=EventSourceResponse)
async def stream(
    streams: Annotated[Streams, Depends(_streams)],
    _known: Annotated[None, Depends(_require_run)],
    task_id: TaskId,
    last_event_id: Annotated[int | None, Header(ge=0, lt=2**63)] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Follow a run: progress messages from `start` to `done` or `error`; `Last-Event-ID` resumes after one."""
    async for step in streams.follow(task_id, last_event_id or 0):
        yield ServerSentEvent(raw_data=step.progress.model_dump_json(), id=str(step.number), event="progress")
