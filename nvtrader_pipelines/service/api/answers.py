"""Answers kept until a file that they come from changes, however many clients ask."""

from collections.abc import Callable
from threading import Lock
from typing import Any

from pydantic import TypeAdapter
from starlette.responses import Response

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.database import ledger_url
from nvtrader_pipelines.storage.read_sources import Sources, is_unchanged, recording
from nvtrader_pipelines.storage.settings import database_url

JSON = TypeAdapter(Any)
MAX_BYTES = 64 << 20  # of all answers
MAX_KEPT = 500  # answers; the names of things are part of their keys


class Body(Component):
    """Body of a request, strict as the components of an experiment."""


def answer_with(document: object) -> Response:
    """Answer with a document, or rows, as JSON."""
    return Response(JSON.dump_json(document), media_type="application/json")


class Answers:
    """Answers of one home by name and arguments, as bytes of JSON."""

    def __init__(self, home: Home) -> None:
        self._lock = Lock()
        self._kept: dict[tuple[object, ...], tuple[Sources, bytes]] = {}
        self._locks: dict[tuple[object, ...], Lock] = {}
        # no file tells of changes in Postgres
        self.is_local = ledger_url(home).get_backend_name() == "sqlite" and database_url(home) is None

    def get(self, key: tuple[object, ...], read: Callable[[], object]) -> Response:
        """Answer with what `read`, a document or rows, returns as JSON; kept as by `keep`."""
        return Response(self.keep(key, lambda: JSON.dump_json(read())), media_type="application/json")

    def keep(self, key: tuple[object, ...], read: Callable[[], bytes], *, is_final: bool = False) -> bytes:
        """Return what `read` returns, read again if a source changed; others wait for it.

        Args:
            key: name of the answer and its arguments.
            read: returns the content; without sources it is read each time.
            is_final: whether no change of a source changes the content.
        """
        with self._lock:
            if len(self._locks) > MAX_KEPT or sum(len(kept[1]) for kept in self._kept.values()) > MAX_BYTES:
                self._locks.clear()
                self._kept.clear()
            lock = self._locks.setdefault(key, Lock())
        with lock:
            kept = self._kept.get(key)
            if not self.is_local or kept is None or not (is_final or is_unchanged(kept[0])):
                with recording() as sources:
                    kept = self._kept[key] = sources, read()
        return kept[1]
