"""Live state of the page: every part and row with the version at which it last changed."""

import asyncio
import logging
import math
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event, Lock, Thread
from typing import Any

from pydantic import BaseModel, ConfigDict

from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, Series, render
from nvtrader_pipelines.service.api.page.sections.bots import read_bot_table
from nvtrader_pipelines.service.api.page.sections.deploy import read_deploy
from nvtrader_pipelines.service.api.page.sections.desk import read_desk, read_next_step, read_switch
from nvtrader_pipelines.service.api.page.sections.feedback import read_feedback
from nvtrader_pipelines.service.api.page.sections.review import read_review
from nvtrader_pipelines.service.api.page.sections.schedule import read_schedule
from nvtrader_pipelines.service.api.page.sections.search import read_search
from nvtrader_pipelines.service.api.page.sections.setup import read_setup
from nvtrader_pipelines.service.api.page.sections.training import read_trainings
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.read_sources import Sources, is_unchanged, recording

LOG = logging.getLogger(__name__)
POLL_SECONDS = 0.1
SCHEDULE_SECONDS = 10.0  # reading the schedules takes some 0.1 s
BEAT_SECONDS = 5.0  # between messages where nothing changes: a browser notices a lost connection


@dataclass(frozen=True)
class Section:
    """Section with the time between looks at its sources."""

    part: str  # that says why the section cannot be read
    read: Callable[[Context], Content]
    seconds: float = 1.0


SECTIONS: Mapping[str, Section] = {
    "setup": Section("setup", read_setup),
    "switch": Section("switch", read_switch, seconds=0.1),
    "desk": Section("trades", read_desk, seconds=0.1),
    "search": Section("search", read_search, seconds=0.2),
    "training": Section("training", read_trainings, seconds=0.1),
    "review": Section("ranked", read_review),
    "deploy": Section("policies", read_deploy),
    "bots": Section("bots", read_bot_table, seconds=0.5),
    "feedback": Section("agreement", read_feedback),
    "next": Section("next", read_next_step),
}
SCHEDULE = Section("schedule", read_schedule, seconds=SCHEDULE_SECONDS)


class SeriesChange(BaseModel):
    """Rows of a chart that are new or changed."""

    model_config = ConfigDict(frozen=True)
    reset: bool  # whether the rows before are gone
    facts: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]


class Changes(BaseModel):
    """What changed on the page after a version."""

    model_config = ConfigDict(frozen=True)
    after: str  # version that the reader has; empty: it has none of this process
    version: str
    clock: str  # time of day in New York
    parts: Mapping[str, str]
    values: Mapping[str, str]
    series: Mapping[str, SeriesChange]


@dataclass
class _Rows:
    """Rows of a chart, with the version at which each last changed."""

    key: str = ""
    since: int = 0  # version at which the key changed
    facts: Mapping[str, Any] = field(default_factory=dict)
    changed: int = 0
    rows: dict[Any, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)

    def update(self, series: Series, version: int) -> bool:
        """Take over a series; whether anything changed."""
        if series.key != self.key or not self.rows.keys() <= {row["id"] for row in series.rows}:
            self.key, self.since, self.rows = series.key, version, {}
        before = {identity: row for identity, (_, row) in self.rows.items()}
        news = [row for row in series.rows if before.get(row["id"]) != row]
        if not news and self.since != version and series.facts == self.facts:
            return False
        self.rows |= {row["id"]: (version, row) for row in news}
        self.facts, self.changed = series.facts, version
        return True

    def after(self, version: int) -> SeriesChange:
        """Rows that changed after a version."""
        is_new = self.since > version
        rows = tuple(row for changed, row in self.rows.values() if is_new or changed > version)
        return SeriesChange(reset=is_new, facts=self.facts, rows=rows)


class LivePage:
    """State of the page of a home, for all who look at it."""

    def __init__(self, shared: Context) -> None:
        self._shared, self._reading, self._lock, self._is_read = shared, Lock(), Lock(), Event()
        self._epoch, self._version = secrets.token_hex(4), 0
        self._kept: dict[str, Sources] = {}
        self._looked_at: dict[str, float] = {}
        self._texts: dict[str, dict[str, tuple[int, str]]] = {"parts": {}, "values": {}}
        self._series: dict[str, _Rows] = {}

    def first_look(self, seconds: float) -> None:
        """Refresh; the first time, wait some seconds at most for what comes as a change if it is read later."""
        if self._is_read.is_set():
            self.refresh()
        else:
            with self._reading:
                self._read("setup", SECTIONS["setup"])  # the markets that forms offer do not change with the page
            Thread(target=self.refresh, daemon=True).start()
            self._is_read.wait(seconds)

    def refresh(self, *, everything: bool = True) -> None:
        """Read the sections whose sources changed; unless `everything`, only those that are due for a look."""
        with self._reading:
            for name, section in SECTIONS.items():
                if everything or self._is_due(name, section):
                    self._looked_at[name] = time.monotonic()
                    self._read(name, section)
        self._is_read.set()

    def _is_due(self, name: str, section: Section) -> bool:
        return time.monotonic() - self._looked_at.get(name, -math.inf) >= section.seconds

    def _read(self, name: str, section: Section) -> None:
        """Read a section if its sources changed; what cannot be read is said in its place, and the others go on."""
        try:
            if self._shared.answers.is_local and is_unchanged(self._kept.get(name, {})):
                return
            self._kept.pop(name, None)  # what cannot be read is read again
            with recording() as sources:
                content = section.read(self._shared)
            self._kept[name] = sources
        except (StorageError, ExecutionError, ValueError, OSError) as error:
            content = Content({section.part: render("problem", sentence=str(error))})
        except Exception:  # the last resort, as for requests: with the traceback in the log
            LOG.exception("the section %s cannot be read", name)
            sentence = "this part cannot be read; the log of the service has the trace"
            content = Content({section.part: render("problem", sentence=sentence)})
            self._looked_at[name] = time.monotonic() + BEAT_SECONDS  # no trace in the log at every look
        self.take(content)

    def refresh_schedule(self) -> None:
        """Read the schedules if they are due for a look."""
        if self._is_due("schedule", SCHEDULE):
            self._looked_at["schedule"] = time.monotonic()
            self._read("schedule", SCHEDULE)

    @property
    def version(self) -> int:
        """Version at which anything changed last."""
        return self._version

    def changes(self, after: str = "") -> Changes:
        """What changed after a version; everything if it is of another process."""
        with self._lock:
            epoch, _, number = after.partition(".")
            is_known = epoch == self._epoch and number.isascii() and number.isdigit() and len(number) < 16
            since = int(number) if is_known else 0
            texts = {
                kind: {name: text for name, (changed, text) in kept.items() if changed > since}
                for kind, kept in self._texts.items()
            }
            series = {name: rows.after(since) for name, rows in self._series.items() if rows.changed > since}
            return Changes(
                after=after if is_known else "",
                version=f"{self._epoch}.{self._version}",
                clock=f"{datetime.now(NEW_YORK.time_zone):%H:%M:%S}",
                parts=texts["parts"],
                values=texts["values"],
                series=series,
            )

    def take(self, content: Content) -> None:
        """Take over the content of a section."""
        with self._lock:
            version, is_changed = self._version + 1, False
            for kind, texts in (("parts", content.parts), ("values", content.values)):
                for name, text in texts.items():
                    if self._texts[kind].get(name, (0, None))[1] != text:
                        self._texts[kind][name], is_changed = (version, text), True
            for name, series in content.series.items():
                is_changed |= self._series.setdefault(name, _Rows()).update(series, version)
            self._version += is_changed


class PageStream:
    """Changes of a page as they come: one reader, however many follow it."""

    def __init__(self, page: LivePage) -> None:
        self.page, self._stop, self._n_followers = page, asyncio.Event(), 0
        self._news: asyncio.Event = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    def end(self) -> None:
        """End the streams; safe in a signal handler."""
        self._stop.set()
        self._wake()

    async def follow(self, after: str) -> AsyncIterator[Changes]:
        """Yield what changes after a version, and a message without changes every few seconds."""
        self._n_followers += 1
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        try:
            while not self._stop.is_set():
                if self._reader.done():
                    self._reader.result()  # raises what the reader raised
                news = self._news  # taken before the changes are read, so that none is missed
                changes = await asyncio.to_thread(self.page.changes, after)  # waits while the home is read
                yield changes
                after = changes.version
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), BEAT_SECONDS)
        finally:
            self._n_followers -= 1
            if not self._n_followers and self._reader:
                self._reader.cancel()
                self._reader = None

    async def _read(self) -> None:
        """Refresh the page while anybody follows it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll())
            group.create_task(self._poll_schedule())

    async def _poll(self) -> None:
        version = 0
        while not self._stop.is_set():
            await asyncio.to_thread(self.page.refresh, everything=False)
            if self.page.version != version:
                version = self.page.version
                self._wake()
            await self._pause(POLL_SECONDS)

    async def _poll_schedule(self) -> None:
        while not self._stop.is_set():
            await asyncio.to_thread(self.page.refresh_schedule)
            await self._pause(1.0)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    def _wake(self) -> None:
        woken, self._news = self._news, asyncio.Event()
        woken.set()
