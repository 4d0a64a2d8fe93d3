"""The kill switch: read before every order and at every session; engaged means hold."""

from typing import Protocol


class KillSwitch(Protocol):
    """Whether trading is stopped."""

    def engaged(self) -> str | None:
        """Why trading is stopped, as a sentence; None where it is not. What cannot be read counts as engaged."""
        ...
