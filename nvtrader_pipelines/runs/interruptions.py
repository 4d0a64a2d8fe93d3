"""Interruptions of runs: a halt by the kill switch, Ctrl-C, a signal, or a caller that stops early."""

from nvtrader_pipelines.storage.store import Store

INTERRUPTED = "the run was interrupted; run it again to resume it"


class RunHalted(Exception):  # noqa: N818 - an interruption, not an error
    """Run that the kill switch ended; it can be resumed."""


def is_interruption(error: BaseException) -> bool:
    """Whether an error ends a run as interrupted rather than as failed."""
    return isinstance(error, RunHalted) or not isinstance(error, Exception)


def require_no_halt(store: Store) -> None:
    """Raise if the kill switch is engaged.

    Raises:
        RunHalted: with the author and the reason of the halt.
    """
    reason = store.switch.halt_reason()
    if reason:
        raise RunHalted(f"the run was halted: {reason}; {store.switch.remedy}, then start it again")
