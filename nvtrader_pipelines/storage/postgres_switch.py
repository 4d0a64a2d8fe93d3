"""Kill switch of all machines: rows in the schema `trading` of Postgres, beside the files of each home."""

from contextlib import suppress

import sqlalchemy as sa

from nvtrader_pipelines.execution.audit import STRICTNESS, State, TradingState, strictest_state
from nvtrader_pipelines.storage.errors import StorageError, UnavailableError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch, Halt
from nvtrader_pipelines.storage.postgres import in_transaction

SCHEMA = "trading"
METADATA = sa.MetaData()
HALTS = sa.Table(
    "halts",
    METADATA,
    sa.Column("account", sa.Text, primary_key=True),  # empty: all accounts
    sa.Column("document", sa.Text, nullable=False),  # Halt
)


class PostgresKillSwitch(FileKillSwitch):
    """Kill switch, engaged by a row, by the variable or file of this machine, or while Postgres cannot be reached."""

    def __init__(self, home: Home, account: str | None, url: sa.URL) -> None:
        super().__init__(home, account)
        self._file, self._url, self._is_row = FileKillSwitch(home, account), url, HALTS.c.account == (account or "")
        self._of_all = self if account is None else PostgresKillSwitch(home, None, url)

    @property
    def name(self) -> str:
        """URL of the database without its password, and the file."""
        return f"{self._url.render_as_string(hide_password=True)} or {self.path}"

    def file_state(self) -> TradingState:
        """State that the row or the file sets; a database that cannot be read counts as halted."""
        try:
            row = self._row()
        except StorageError as error:
            reason = f"the kill switch cannot be checked, which counts as engaged: {error}"
            return TradingState(state="halted", reason=reason)
        return strictest_state([self.state_of(row) if row else TradingState(), self._file.file_state()])

    def is_engaged(self, state: State) -> bool:
        """Whether the row is at least as strict as a state; the file does not stop other machines."""
        with suppress(UnavailableError):
            row = self._row()
            return row is not None and STRICTNESS[row.state] >= STRICTNESS[state]
        return False

    def read(self) -> Halt | None:
        """Stricter of the row and the file, or None if neither can be read as a halt."""
        halts = [self._file.read()]
        with suppress(StorageError):
            halts.insert(0, self._row())
        return max(filter(None, halts), key=lambda halt: STRICTNESS[halt.state], default=None)

    def write(self, halt: Halt) -> None:
        """Engage the switch of all machines; if that fails, that of this machine.

        Raises:
            StorageError: if Postgres cannot be reached.
        """
        try:
            with in_transaction("kill switch", self._url, SCHEMA, METADATA) as connection:
                connection.execute(sa.delete(HALTS).where(self._is_row))
                row = {"account": self.account or "", "document": halt.model_dump_json()}
                connection.execute(sa.insert(HALTS).values(row))
        except UnavailableError as error:
            self._file.write(halt)
            raise UnavailableError(
                f"trading is stopped on this machine, and on others until they reach the database: {error}; then halt "
                "once more"
            ) from error

    def remove(self) -> None:
        """Release the switch of all machines, and the file of this one.

        Raises:
            StorageError: if Postgres cannot be reached.
            OSError: if the file cannot be removed.
        """
        with in_transaction("kill switch", self._url, SCHEMA, METADATA) as connection:
            connection.execute(sa.delete(HALTS).where(self._is_row))
        with suppress(FileNotFoundError):
            self._file.remove()

    def _row(self) -> Halt | None:
        with in_transaction("kill switch", self._url, SCHEMA) as connection:
            if connection.scalar(sa.select(sa.func.to_regclass(HALTS.name))) is None:
                return None
            document = connection.scalar(sa.select(HALTS.c.document).where(self._is_row))
        try:
            return None if document is None else Halt.model_validate_json(document)
        except ValueError as error:
            raise StorageError(f"a row of {SCHEMA}.{HALTS.name} must be a halt, but is not: {error}") from error
