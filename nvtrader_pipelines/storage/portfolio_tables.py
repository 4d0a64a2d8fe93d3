"""The loop's tables, as projections of the audit and of the accounts' own books."""

from nvtrader_pipelines.storage.warehouse import Warehouse


def mirror(lake: Warehouse, account: str | None = None) -> dict[str, int]:
    """Bring the tables of `portfolio` up to date with the audit and the books, of one account or of all.

    Returns:
        Rows written, by table; none where nothing is new.

    Raises:
        StorageError: if the audit is damaged, or is not the one that was mirrored before.
    """
    raise NotImplementedError
