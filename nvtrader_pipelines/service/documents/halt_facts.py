"""Document of the kill switch; a halt waits for no library of tables."""

from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.execution.audit import TradingState

if TYPE_CHECKING:
    from nvtrader_pipelines.storage.kill_switch import FileKillSwitch


class HaltDocument(Document):
    """State of the kill switch, and what a halt or a resume did."""

    kill_switch: str | None  # why trading is stopped; null if it is not
    trading: TradingState
    message: str = ""  # the outcome
    cancelled: tuple[str, ...] = ()  # orders at brokers
    still_open: dict[str, str] = Field(default_factory=dict)  # accounts where orders may be open, with the reason

    @classmethod
    def of_switch(cls, switch: "FileKillSwitch", **outcome: Any) -> Self:
        """State of a switch, with an outcome."""
        state = switch.state()
        return cls(kill_switch=state.halt_reason, trading=state, **outcome)
