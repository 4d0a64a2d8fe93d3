"""Store of a home: the one place that opens its parts, from tables to the kill switch."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.locks import home_lock

if TYPE_CHECKING:
    from nvtrader_pipelines.market.calendar import Calendars, TradingCalendar
    from nvtrader_pipelines.storage.account_book import AccountBook
    from nvtrader_pipelines.storage.audit_log import JsonlAudit
    from nvtrader_pipelines.storage.decision_file import DecisionFile
    from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
    from nvtrader_pipelines.storage.judgements import Judgements
    from nvtrader_pipelines.storage.kill_switch import FileKillSwitch
    from nvtrader_pipelines.storage.ledger import Ledger
    from nvtrader_pipelines.storage.panels import Panels
    from nvtrader_pipelines.storage.policy_library import PolicyLibrary
    from nvtrader_pipelines.storage.research_files import SearchSessions


@dataclass(frozen=True)
class Store:
    """Tables, ledger, policies, audit, books and other parts of one home.

    Each part opens on first use, so that a command which only lists plans imports neither Iceberg nor SQLAlchemy.
    Every process opens its own store; processes share only the files.
    """

    home: Home

    @cached_property
    def tables(self) -> "Warehouse":
        """Iceberg tables."""
        from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse

        return Warehouse(self.home, lambda: self.ledger.runs(with_worlds=True)["snapshot_ids"])

    @cached_property
    def ledger(self) -> "Ledger":
        """Versions of experiments and their runs.

        Raises:
            StorageError: if its database cannot be reached, or has another revision.
        """
        from nvtrader_pipelines.storage.ledger import Ledger

        return Ledger.open(self.home)

    @cached_property
    def policies(self) -> "PolicyLibrary":
        """Trained policies as files."""
        from nvtrader_pipelines.storage.policy_library import PolicyLibrary

        return PolicyLibrary(self.home)

    @cached_property
    def audit(self) -> "JsonlAudit":
        """Events from a proposal to a fill, append-only."""
        from nvtrader_pipelines.storage.audit_log import JsonlAudit

        return JsonlAudit(self.home)

    @cached_property
    def decisions(self) -> "DecisionFile":
        """Decisions of people."""
        from nvtrader_pipelines.storage.decision_file import DecisionFile

        return DecisionFile(self.home)

    @cached_property
    def switch(self) -> "FileKillSwitch":
        """Kill switch of trading and runs."""
        return self.switch_of(None)

    def switch_of(self, account: str | None) -> "FileKillSwitch":
        """Kill switch of an account; None: of all of them, and of runs."""
        from nvtrader_pipelines.storage.trading_places import open_switch

        return open_switch(self.home, account)

    @cached_property
    def judgements(self) -> "Judgements":
        """Results of backtests and stress tests by digest."""
        from nvtrader_pipelines.storage.judgements import Judgements

        return Judgements(self.home)

    @cached_property
    def searches(self) -> "SearchSessions":
        """Search sessions."""
        from nvtrader_pipelines.storage.research_files import SearchSessions

        return SearchSessions(self.home)

    @cached_property
    def panels(self) -> "Panels":
        """Pinned market panels."""
        from nvtrader_pipelines.storage.panels import Panels

        return Panels(self.tables)

    def book(self, account: str) -> "AccountBook":
        """Open an account's book, with a connection of its own."""
        from nvtrader_pipelines.storage.trading_places import open_book

        return open_book(self.home, account)

    def books(self) -> "dict[str, AccountBook]":
        """Open the books of all accounts that have one, by account."""
        from nvtrader_pipelines.storage.trading_places import open_books

        return open_books(self.home)

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Lock of work that must not run concurrently."""
        return home_lock(self.home, name)

    def read_calendars(self) -> "Calendars":
        """Read the calendars of the sources.

        Raises:
            StorageError: if `data/market.yaml` is invalid.
        """
        from nvtrader_pipelines.storage.panels import read_calendars

        return read_calendars(self.tables)

    def calendar_of(self, partition_key: str) -> "TradingCalendar":
        """Calendar of the market of an experiment version.

        Raises:
            StorageError: if the version is not registered, or `data/market.yaml` is invalid.
        """
        return self.read_calendars().of(self.ledger.source_of(partition_key))
