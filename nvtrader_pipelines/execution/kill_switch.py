"""Kill switch, which is read before every order and at every session."""

from typing import Protocol


class KillSwitch(Protocol):
    """Switch that stops trading while it is engaged."""

    def halt_reason(self) -> str | None:
        """Return why trading is stopped; None if it is not. A switch that cannot be read counts as engaged."""
        ...
