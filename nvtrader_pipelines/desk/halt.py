"""Halt, reduction and resumption of trading on every account or on one, each audited."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from nvtrader_pipelines.execution.audit import AuditEvent, EventKind, State, event_id
from nvtrader_pipelines.storage.errors import StorageError, UnavailableError
from nvtrader_pipelines.storage.kill_switch import Halt
from nvtrader_pipelines.storage.store import Store

VERBS: Mapping[State, str] = {"reducing": "reduced", "halted": "stopped"}  # past participles


@dataclass(frozen=True)
class Scope:
    """Extent of a halt: the account, and whether trading stops or only reduces positions."""

    account: str | None = None  # None: all accounts
    state: Literal["reducing", "halted"] = "halted"

    @property
    def verb(self) -> str:
        """Past participle for sentences."""
        return VERBS[self.state]

    @property
    def subject(self) -> str:
        """Subject for sentences."""
        return f"trading of the account {self.account}" if self.account else "trading"


EVERYTHING = Scope()


def halt(store: Store, by: str, reason: str, clock: Callable[[], datetime], scope: Scope = EVERYTHING) -> str:
    """Halt or reduce trading and return the outcome as a sentence; a switch as strict as that stays unchanged.

    The file is written before the event, so that a kill in between leaves trading halted; the next halt adds the
    missing event. A second halt is an event too.

    Raises:
        StorageError: if the file cannot be written; or if the audit cannot, with trading halted nevertheless.
    """
    switch = store.switch_of(scope.account)
    with switch.lock():
        order = Halt(reason=reason, by=by, at=clock(), state=scope.state)
        before, earlier = switch.file_state(), switch.read()
        if not switch.is_engaged(scope.state):
            switch.write(order)
            _record(store, scope.account, order)
            return f"{scope.subject} is {scope.verb}: {reason}"
        verb = VERBS[before.state]
        again = order.model_copy(update={"reason": f"{reason}; it was {verb} already: {before.reason}"})
        _record(store, scope.account, *([earlier] if earlier else []), again)
        return f"{scope.subject} is {verb} already: {before.reason}"


class StopOutcome(NamedTuple):
    """What a stop of trading did."""

    message: str
    failure: StorageError | None  # why the switch or the audit could not be written
    cancelled: list[str]  # orders at brokers
    still_open: dict[str, str]  # accounts where orders may be open, with the reason


def stop_trading(
    store: Store,
    by: str,
    reason: str,
    clock: Callable[[], datetime],
    on_halt: Callable[[str], None] = lambda _: None,
    scope: Scope = EVERYTHING,
) -> StopOutcome:
    """Halt or reduce trading, tell `on_halt` so, and cancel open orders at brokers, even if it cannot be recorded.

    A reduction cancels them, too: an open order may grow a position.
    """
    from nvtrader_pipelines.desk.open_orders import CancelRequest, cancel_all_orders

    failure = None
    try:
        message = halt(store, by, reason, clock, scope)
        on_halt(message)
    except StorageError as error:
        message, failure = str(error), error
    request = CancelRequest(f"trading was {scope.verb} by {by}: {reason}", by, clock)
    cancelled, still_open = cancel_all_orders(store, request, scope.account)
    if failure is None:
        _mirror(store)
    return StopOutcome(message, failure, cancelled, still_open)


def resume(store: Store, by: str, reason: str, clock: Callable[[], datetime], account: str | None = None) -> str:
    """Resume trading unless another switch still halts it, and return the outcome as a sentence.

    The event is written before the file is removed, so that trading never resumes without an audited author.

    Raises:
        StorageError: if the file cannot be removed.
    """
    switch = store.switch_of(account)
    variable = switch.variable_reason()
    still = f"; it is still stopped here, for {variable}: unset it" if variable else ""
    if account and (reason_of_all := store.switch.file_reason()):
        still += f"; but that of all accounts is restricted: {reason_of_all}"
    with switch.lock():
        if switch.file_reason() is None:
            return f"trading was not stopped by the file {switch.name}{still}"
        store.audit.append([_event("resumed", Halt(reason=reason, by=by, at=clock()), account)])
        try:
            switch.remove()
        except (OSError, UnavailableError) as error:
            problem = getattr(error, "strerror", None) or error
            failed = f"the kill switch {switch.name} cannot be removed ({problem}), so trading stays stopped"
            store.audit.append([_event("halted", Halt(reason=failed, by=by, at=clock()), account)])
            raise StorageError(f"{failed}; remove it by hand") from error
    _mirror(store)
    return f"trading may resume{still}"


def _mirror(store: Store) -> None:
    """Write the newest event to `portfolio.audit`, if there are views."""
    if store.home.duckdb_file.exists():
        from nvtrader_pipelines.desk.mirror import mirror_home_events

        mirror_home_events(store)


def _record(store: Store, account: str | None, *halts: Halt) -> None:
    try:
        store.audit.append([_event(halt.state, halt, account) for halt in halts])
    except StorageError as error:
        raise StorageError(
            f"trading is stopped, but the audit lacks the event: {error}; then halt once more"
        ) from error


def _event(kind: EventKind, halt: Halt, account: str | None) -> AuditEvent:
    identity = event_id(kind, halt.at.isoformat(), halt.by, *([account] if account else []))
    return AuditEvent(event_id=identity, kind=kind, at=halt.at, by=halt.by, account=account, reason=halt.reason)
