"""Notification: message about a state that needs a person."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from nvtrader_pipelines.components.text import short_id

Kind = Literal[
    "failed_run", "failed_check", "failed_command", "waiting_plan", "stale_data", "kill_switch", "unreachable_ui"
]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Notification:
    """Message about one state; a state has the same key each time it is read."""

    kind: Kind
    identity: str  # of the state within its kind
    subject: str  # one line
    body: str  # cause, ids and the command that helps

    @property
    def key(self) -> str:
        """Key under which the record of sent notifications holds the state."""
        return f"{self.kind}:{self.identity}"


def text_digest(text: str) -> str:
    """Digest of a text as part of an identity: another reason is another state."""
    return short_id(hashlib.sha256(text.encode()).hexdigest())


CurrentStates = Mapping[Kind, Sequence[Notification]]  # by kind; a kind that could not be read is missing
