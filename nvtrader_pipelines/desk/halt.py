"""Halt and resume of trading on every account, both audited."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from nvtrader_pipelines.execution.audit import AuditEvent, EventKind, event_id
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.kill_switch import Halt
from nvtrader_pipelines.storage.store import Store


def halt(store: Store, by: str, reason: str, clock: Callable[[], datetime]) -> str:
    """Halt trading and return the outcome as a sentence; an engaged switch stays unchanged.

    The file is written before the event, so that a kill in between leaves trading halted; the next halt adds the
    missing event. A second halt is an event too.

    Raises:
        StorageError: if the file cannot be written; or if the audit cannot, with trading halted nevertheless.
    """
    switch = store.switch
    with switch.lock():
        order, before, earlier = Halt(reason=reason, by=by, at=clock()), switch.file_reason(), switch.read()
        if before is None:
            switch.write(order)
            _record(store, order)
            return f"trading is stopped: {reason}"
        again = order.model_copy(update={"reason": f"{reason}; it was stopped already: {before}"})
        _record(store, *([earlier] if earlier else []), again)
        return f"trading is stopped already: {before}"


class StopOutcome(NamedTuple):
    """What a stop of trading did."""

    message: str
    failure: StorageError | None  # why the switch or the audit could not be written
    cancelled: list[str]  # orders at brokers
    still_open: dict[str, str]  # accounts where orders may be open, with the reason


def stop_trading(
    store: Store, by: str, reason: str, clock: Callable[[], datetime], on_halt: Callable[[str], None] = lambda _: None
) -> StopOutcome:
    """Halt trading, tell `on_halt` so, and cancel open orders at brokers, also where the halt cannot be recorded."""
    from nvtrader_pipelines.desk.open_orders import CancelRequest, cancel_all_orders

    failure = None
    try:
        message = halt(store, by, reason, clock)
        on_halt(message)
    except StorageError as error:
        message, failure = str(error), error
    request = CancelRequest(f"trading was stopped by {by}: {reason}", by, clock)
    cancelled, still_open = cancel_all_orders(store, request)
    if failure is None:
        _mirror(store)
    return StopOutcome(message, failure, cancelled, still_open)


def resume(store: Store, by: str, reason: str, clock: Callable[[], datetime]) -> str:
    """Resume trading unless the variable still halts it, and return the outcome as a sentence.

    The event is written before the file is removed, so that trading never resumes without an audited author.

    Raises:
        StorageError: if the file cannot be removed.
    """
    switch = store.switch
    variable = switch.variable_reason()
    still = f"; it is still stopped here, for {variable}: unset it" if variable else ""
    with switch.lock():
        if switch.file_reason() is None:
            return f"trading was not stopped by the file {switch.path}{still}"
        store.audit.append([_event("resumed", Halt(reason=reason, by=by, at=clock()))])
        try:
            switch.remove()
        except OSError as error:
            failed = f"the kill switch {switch.path} cannot be removed ({error.strerror}), so trading stays stopped"
            store.audit.append([_event("halted", Halt(reason=failed, by=by, at=clock()))])
            raise StorageError(f"{failed}; remove it by hand") from error
    _mirror(store)
    return f"trading may resume{still}"


def _mirror(store: Store) -> None:
    """Write the newest event to `portfolio.audit`, if there are views."""
    if store.home.duckdb_file.exists():
        from nvtrader_pipelines.desk.mirror import mirror_home_events

        mirror_home_events(store)


def _record(store: Store, *halts: Halt) -> None:
    try:
        store.audit.append([_event("halted", halted_plan) for halted_plan in halts])
    except StorageError as error:
        raise StorageError(
            f"trading is stopped, but the audit lacks the event: {error}; then halt once more"
        ) from error


def _event(kind: EventKind, halt: Halt) -> AuditEvent:
    identity = event_id(kind, halt.at.isoformat(), halt.by)
    return AuditEvent(event_id=identity, kind=kind, at=halt.at, by=halt.by, reason=halt.reason)
