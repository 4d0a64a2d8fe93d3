"""The kill switch as a file that anything can make and a person can see, and as a variable of the environment."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from nvtrader_pipelines.execution.audit import AuditEvent, AuditLog, EventKind, event_id
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import is_there, locked, write_atomically
from nvtrader_pipelines.storage.home import Home, lock_path

VARIABLE = "NVTRADER_KILL_SWITCH"
RELEASED = {"", "0"}  # values of the variable that do not engage it


class Halt(BaseModel):
    """What the file says."""

    model_config = ConfigDict(frozen=True)
    reason: str
    by: str
    at: AwareDatetime


class FileKillSwitch:
    """Engaged by anything at all in the file's place, be it a link to nowhere, and by the variable."""

    def __init__(self, home: Home) -> None:
        self._path = home.kill_switch

    def engaged(self) -> str | None:
        """Why trading is stopped, as a sentence; None where it is not. What cannot be read counts as engaged."""
        return _variable_says() or _file_says(self._path)


def halt(home: Home, log: AuditLog, by: str, reason: str, clock: Callable[[], datetime]) -> str:
    """Stop trading; a switch that is engaged already stays as it is. What was done, as a sentence.

    The file is there before the event is, so that a kill between the two leaves trading stopped; the event of a file
    that lacks it is kept when trading is stopped once more. Whoever stops it once more has an event too.

    Raises:
        StorageError: if the file cannot be written; or if the audit cannot, and trading is stopped all the same.
    """
    with _alone(home):
        said, before = Halt(reason=reason, by=by, at=clock()), _file_says(home.kill_switch)
        earlier = _read(home.kill_switch)
        if before is None:
            try:
                write_atomically(home.kill_switch, said.model_dump_json().encode())
            except OSError as error:
                raise StorageError(
                    f"the kill switch {home.kill_switch} cannot be written ({error.strerror}), so it stops nothing; "
                    f"set {VARIABLE}=1 in the environment of whatever trades, or stop it"
                ) from error
            _tell(log, said)
            return f"trading is stopped: {reason}"
        again = said.model_copy(update={"reason": f"{reason}; it was stopped already: {before}"})
        _tell(log, *([earlier] if earlier else []), again)
        return f"trading is stopped already: {before}"


def resume(home: Home, log: AuditLog, by: str, reason: str, clock: Callable[[], datetime]) -> str:
    """Let trading go on, unless the variable still stops it. What was done, as a sentence.

    The event is kept before the file goes: nothing trades again without a row that says who let it.

    Raises:
        StorageError: if what is in the file's place cannot be removed.
    """
    variable = _variable_says()
    still = f"; it is still stopped here, for {variable}: unset it" if variable else ""
    with _alone(home):
        if _file_says(home.kill_switch) is None:
            return f"trading was not stopped by the file {home.kill_switch}{still}"
        log.append([_event("resumed", Halt(reason=reason, by=by, at=clock()))])
        try:
            _remove(home.kill_switch)
        except OSError as error:
            failed = (
                f"the kill switch {home.kill_switch} cannot be removed ({error.strerror}), so trading stays stopped"
            )
            log.append([_event("halted", Halt(reason=failed, by=by, at=clock()))])
            raise StorageError(f"{failed}; remove it by hand") from error
        return f"trading may go on{still}"


@contextmanager
def _alone(home: Home) -> Iterator[None]:
    """One who stops or resumes at a time: a halt between a resume's look and its removal would be lost."""
    with ExitStack() as held:
        with suppress(OSError):  # where there is nowhere to wait, stopping is worth more than a turn
            held.enter_context(locked(lock_path(home, "kill_switch")))
        yield


def _tell(log: AuditLog, *said: Halt) -> None:
    try:
        log.append([_event("halted", each) for each in said])
    except StorageError as error:
        raise StorageError(
            f"trading is stopped, but the audit does not tell of it: {error}; then stop it once more"
        ) from error


def _event(kind: EventKind, said: Halt) -> AuditEvent:
    identity = event_id(kind, said.at.isoformat(), said.by)
    return AuditEvent(event_id=identity, kind=kind, at=said.at, by=said.by, reason=said.reason)


def _variable_says() -> str | None:
    value = os.environ.get(VARIABLE, "")
    return None if value in RELEASED else f"the environment has {VARIABLE}={value}"


def _file_says(path: Path) -> str | None:
    """Why the file stops trading, as a sentence; None where nothing is there."""
    try:
        if not is_there(path):
            return None
    except OSError as error:
        return f"the kill switch {path} cannot be looked at ({error.strerror}), which counts as engaged"
    said = _read(path)
    if said is None:
        return f"the kill switch {path} is there, but does not say why"
    return f"{said.by} stopped trading at {said.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC: {said.reason}"


def _read(path: Path) -> Halt | None:
    """What the file says; None where it says nothing that can be read."""
    try:
        if not path.is_file():  # a pipe or a device would be read for ever
            return None
        said = Halt.model_validate_json(path.read_bytes())
        said.at.astimezone(UTC)
    except (OSError, ValidationError, OverflowError):  # the last: UTC has no such year
        return None
    return said


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()
