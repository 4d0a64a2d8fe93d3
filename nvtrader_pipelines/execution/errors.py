"""What stops a rebalance."""


class ExecutionError(ValueError):
    """Something that must hold before an order is placed does not; nothing was written."""
