"""Documents that the ledger keeps as versions, identified by their content."""

from typing import ClassVar

from nvtrader_pipelines.components.component import Component, content_hash
from nvtrader_pipelines.components.text import short_id


class Versioned(Component):
    """Frozen document with a name."""

    version_kind: ClassVar[str]

    name: str

    @property
    def spec_hash(self) -> str:
        """SHA-256 of the content, 64 hexadecimal digits."""
        return content_hash(self)

    @property
    def partition_key(self) -> str:
        """`name@hash8`, with the first digits of the hash."""
        return f"{self.name}@{short_id(self.spec_hash)}"
