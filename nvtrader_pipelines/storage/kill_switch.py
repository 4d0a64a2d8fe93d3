"""Kill switch: a file that any program can create, or an environment variable."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import file_lock, write_atomically
from nvtrader_pipelines.storage.home import Home, lock_path
from nvtrader_pipelines.storage.read_sources import note_read, read_state

VARIABLE = "NVTRADER_KILL_SWITCH"
RELEASED = {"", "0"}  # values of the variable that do not engage it


class Halt(BaseModel):
    """Content of the kill switch file: who stopped trading, when and why."""

    model_config = ConfigDict(frozen=True)
    reason: str
    by: str
    at: AwareDatetime


class FileKillSwitch:
    """Kill switch, engaged while the variable is set or the file exists in any form.

    Anything of that name counts as the file, even a dangling symlink.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self.path = home.kill_switch

    def halt_reason(self) -> str | None:
        """Reason why trading is stopped, or None; an unreadable switch counts as engaged."""
        return self.variable_reason() or self.file_reason()

    @property
    def remedy(self) -> str:
        """Steps that release the switch, as the end of a sentence; empty if it is not engaged."""
        steps = (
            f"unset {VARIABLE} to trade again" if self.variable_reason() else "",
            "`nvtrader resume` releases it" if self.file_reason() else "",
        )
        return "; ".join(filter(None, steps))

    def variable_reason(self) -> str | None:
        """Reason given by the variable, as a sentence, or None if it does not stop trading."""
        value = read_state(os.environ.get, VARIABLE, "")
        return None if value in RELEASED else f"the environment has {VARIABLE}={value}"

    def file_reason(self) -> str | None:
        """Reason given by the file, as a sentence, or None if there is no file."""
        note_read(self.path)
        try:
            self.path.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"the kill switch {self.path} cannot be checked ({error.strerror}), which counts as engaged"
        halt = self.read()
        if halt is None:
            return f"the kill switch {self.path} exists, but gives no reason"
        return f"{halt.by} stopped trading at {halt.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC: {halt.reason}"

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
        """Serialize engaging and releasing, so that a release never removes a halt it has not read."""
        with ExitStack() as stack:
            with suppress(OSError):  # if no lock file can be made, halting matters more than the lock
                stack.enter_context(file_lock(lock_path(self._home, "kill_switch")))
            yield
