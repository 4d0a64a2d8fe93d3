"""Documents that only tools answer with: rows of any table, and accounts in brief."""

from typing import Any

from nvtrader_pipelines.components.document import Document


class TableRows(Document):
    """Rows of a table or a query."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    has_more: bool  # whether further rows were left out
