"""Kill switch of all accounts or of one: a file that any program can create, or an environment variable."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from nvtrader_pipelines.execution.audit import STRICTNESS, State, TradingState, strictest_state
from nvtrader_pipelines.storage.errors import StorageError, UnavailableError
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home, lock_path
from nvtrader_pipelines.storage.locks import try_lock
from nvtrader_pipelines.storage.read_sources import note_read, read_state

VARIABLE = "NVTRADER_KILL_SWITCH"
LOCK_PAUSES = (0.0, *[0.1] * 20)  # seconds before each try of the lock; then halting goes on without it
RELEASED = {"", "0"}  # values of the variable that do not engage it


class Halt(BaseModel):
    """Content of the kill switch file: who stopped or reduced trading, when and why."""

    model_config = ConfigDict(frozen=True)
    reason: str
    by: str
    at: AwareDatetime
    state: Literal["reducing", "halted"] = "halted"


class FileKillSwitch:
    """Kill switch, engaged while the variable is set or the file exists in any form.

    Anything of that name counts as the file, even a dangling symlink. That of an account is engaged while that of all
    accounts is, too.
    """

    def __init__(self, home: Home, account: str | None = None) -> None:
        self._home, self.account = home, account
        self.path = home.kill_switch if account is None else home.trading_states / account
        self._of_all = self if account is None else FileKillSwitch(home)

    @property
    def name(self) -> str:
        """Where the switch is, for sentences."""
        return str(self.path)

    def state(self) -> TradingState:
        """State of trading, the stricter of all accounts' and the account's; unreadable files count as halted."""
        return strictest_state([self._variable_state(), self._of_all.file_state(), self.file_state()])

    def halt_reason(self) -> str | None:
        """Reason why trading is stopped, or None; an unreadable switch counts as engaged."""
        return self.state().halt_reason

    @property
    def remedy(self) -> str:
        """Steps that release the switch, as the end of a sentence; empty if it is not engaged."""
        steps = (
            f"unset {VARIABLE} to trade again" if self.variable_reason() else "",
            "`nvtrader resume` releases it" if self._of_all.file_reason() else "",
            f"`nvtrader resume --account {self.account}` releases it" if self.account and self.file_reason() else "",
        )
        return "; ".join(filter(None, steps))

    def variable_reason(self) -> str | None:
        """Reason given by the variable, as a sentence, or None if it does not stop trading."""
        value = read_state(os.environ.get, VARIABLE, "")
        return None if value in RELEASED else f"the environment has {VARIABLE}={value}"

    def _variable_state(self) -> TradingState:
        reason = self.variable_reason()
        return TradingState(state="halted", by="environment", reason=reason) if reason else TradingState()

    def file_reason(self) -> str | None:
        """Reason given by the file, as a sentence, or None if there is no file."""
        return self.file_state().reason or None

    def file_state(self) -> TradingState:
        """State that the file sets; active if there is no file."""
        note_read(self.path)
        try:
            self.path.lstat()
        except FileNotFoundError:
            return TradingState()
        except OSError as error:
            reason = f"the kill switch {self.path} cannot be checked ({error.strerror}), which counts as engaged"
            return TradingState(state="halted", reason=reason)
        halt = self.read()
        if halt is None:
            return TradingState(state="halted", reason=f"the kill switch {self.path} exists, but gives no reason")
        return self.state_of(halt)

    def is_engaged(self, state: State) -> bool:
        """Whether the switch itself is at least as strict as a state."""
        return STRICTNESS[self.file_state().state] >= STRICTNESS[state]

    def state_of(self, halt: Halt) -> TradingState:
        """State that a halt sets, with a sentence as its reason."""
        did = "stopped" if halt.state == "halted" else "reduced"
        of = f" of the account {self.account}" if self.account else ""
        reason = f"{halt.by} {did} trading{of} at {halt.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC: {halt.reason}"
        return TradingState(state=halt.state, by=halt.by, reason=reason)

    def read(self) -> Halt | None:
        """Content of the file, or None if it cannot be read as a halt."""
        note_read(self.path)
        try:
            if not self.path.is_file():  # reading a pipe or a device would never end
                return None
            halt = Halt.model_validate_json(self.path.read_bytes())
            halt.at.astimezone(UTC)
        except (OSError, ValidationError, OverflowError):  # OverflowError: the year does not exist in UTC
            return None
        return halt

    def write(self, halt: Halt) -> None:
        """Engage the switch; a full disk may have room for an empty file, which engages it without a reason.

        Raises:
            StorageError: if no file can be made.
        """
        try:
            write_atomically(self.path, halt.model_dump_json().encode())
        except OSError as error:
            with suppress(OSError):
                self.path.touch()
                return
            raise StorageError(
                f"the kill switch {self.path} cannot be written ({error.strerror}), so it stops nothing; "
                f"set {VARIABLE}=1 in the environment of every process that trades, or stop them"
            ) from error

    def remove(self) -> None:
        """Release the switch.

        Raises:
            OSError: if the file cannot be removed.
        """
        if self.path.is_dir() and not self.path.is_symlink():
            self.path.rmdir()
        else:
            self.path.unlink()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Serialize engaging and releasing, so that no unread halt is removed; wait two seconds at most."""
        with ExitStack() as stack:
            with suppress(OSError, UnavailableError):  # if no lock can be had, halting matters more than the lock
                path = lock_path(self._home, "kill_switch")
                stack.enter_context(try_lock(self._home, "kill_switch", path, LOCK_PAUSES))
            yield
