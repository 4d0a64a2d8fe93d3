"""What stops a rebalance."""


class ExecutionError(ValueError):
    """Something that must hold before an order is placed does not; nothing was written."""


class NotReconciled(ExecutionError):  # noqa: N818 - the name says what is the matter
    """An account differs from what was expected, and no person has accepted it."""
