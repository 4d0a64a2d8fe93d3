"""The audit on disk."""

from collections.abc import Sequence

from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.storage.home import Home


class JsonlAudit:
    """The audit log of a home: `data/audit/events.jsonl`."""

    def __init__(self, home: Home) -> None:
        self._path = home.audit / "events.jsonl"

    def append(self, events: Sequence[AuditEvent]) -> None:
        """Keep events, durably when it returns; those whose id is kept already are left as they are."""
        raise NotImplementedError

    def events(self, account: str | None = None) -> Sequence[AuditEvent]:
        """Every event in the order they were appended, of one account or of all."""
        raise NotImplementedError

    def has(self, event: str) -> bool:
        """Whether an event of this id is kept."""
        raise NotImplementedError
