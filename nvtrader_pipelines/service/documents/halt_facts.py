"""Document of the kill switch; a halt waits for no library of tables."""

from pydantic import Field

from nvtrader_pipelines.components.document import Document


class HaltDocument(Document):
    """State of the kill switch, and what a halt or a resume did."""

    kill_switch: str | None  # why trading is stopped; null if it is not
    message: str = ""  # the outcome
    cancelled: tuple[str, ...] = ()  # orders at brokers
    still_open: dict[str, str] = Field(default_factory=dict)  # accounts where orders may be open, with the reason
