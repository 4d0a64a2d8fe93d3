"""Stop trading on every account, and let it resume; both are events of the audit."""

from collections.abc import Callable
from datetime import datetime

from nvtrader_pipelines.execution.audit import AuditEvent, EventKind, event_id
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch, Halt
from nvtrader_pipelines.storage.store import Store


def halt(store: Store, by: str, reason: str, clock: Callable[[], datetime]) -> str:
    """Stop trading, and return the outcome as a sentence; a switch that is engaged already stays as it is.

    The file is written before the event, so that a kill between the two leaves trading stopped; the next halt adds the
    event that a file lacks. A second halt has an event too.

    Raises:
        StorageError: if the file cannot be written; or if the audit cannot, and trading is stopped all the same.
    """
    switch = FileKillSwitch(store.home)
    with switch.lock():
        order, before, earlier = Halt(reason=reason, by=by, at=clock()), switch.engaged_by_file(), switch.read()
        if before is None:
            switch.write(order)
            _record(store, order)
            return f"trading is stopped: {reason}"
        again = order.model_copy(update={"reason": f"{reason}; it was stopped already: {before}"})
        _record(store, *([earlier] if earlier else []), again)
        return f"trading is stopped already: {before}"


def resume(store: Store, by: str, reason: str, clock: Callable[[], datetime]) -> str:
    """Let trading resume unless the variable still stops it, and return the outcome as a sentence.

    The event is written before the file is removed: nothing trades again without a row that names who let it.

    Raises:
        StorageError: if the file cannot be removed.
    """
    switch = FileKillSwitch(store.home)
    variable = switch.engaged_by_variable()
    still = f"; it is still stopped here, for {variable}: unset it" if variable else ""
    with switch.lock():
        if switch.engaged_by_file() is None:
            return f"trading was not stopped by the file {switch.path}{still}"
        store.audit.append([_event("resumed", Halt(reason=reason, by=by, at=clock()))])
        try:
            switch.remove()
        except OSError as error:
            failed = f"the kill switch {switch.path} cannot be removed ({error.strerror}), so trading stays stopped"
            store.audit.append([_event("halted", Halt(reason=failed, by=by, at=clock()))])
            raise StorageError(f"{failed}; remove it by hand") from error
        return f"trading may resume{still}"


def _record(store: Store, *halts: Halt) -> None:
    try:
        store.audit.append([_event("halted", each) for each in halts])
    except StorageError as error:
        raise StorageError(
            f"trading is stopped, but the audit lacks the event: {error}; then halt once more"
        ) from error


def _event(kind: EventKind, halt: Halt) -> AuditEvent:
    identity = event_id(kind, halt.at.isoformat(), halt.by)
    return AuditEvent(event_id=identity, kind=kind, at=halt.at, by=halt.by, reason=halt.reason)
