"""Use cases on a home as a whole: its market, results, checks and kill switch."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from nvtrader_pipelines.service.library_noise import silence_libraries
from nvtrader_pipelines.service.operations.arguments import OUTPUT, AuditReason, OneAccount
from nvtrader_pipelines.service.operations.operation import Family, operation
from nvtrader_pipelines.service.output_paths import require_file_path
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.settings import database_url
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from nvtrader_pipelines.notifications.home_status import HomeStatus
    from nvtrader_pipelines.service.documents.catalogue import ComponentFacts
    from nvtrader_pipelines.service.documents.halt_facts import HaltDocument
    from nvtrader_pipelines.service.documents.home_facts import (
        BackupDocument,
        ChannelMessage,
        HomeReport,
        ListedCheck,
        ListedTable,
        RestoredHome,
        TableColumn,
    )
    from nvtrader_pipelines.service.documents.market_facts import MarketDocument
    from nvtrader_pipelines.storage.errors import StorageError
    from nvtrader_pipelines.storage.moving import MovedTable

NO_REASON = "no reason was given"
REDUCE = "Only reduce: place orders that grow no position."
Reduce = Annotated[bool, Field(description=REDUCE)]


class WholeHome(Family):
    """Market, results, checks and kill switch of a home."""

    @operation("nvtrader ingest", "nvtrader ingest prices.csv", "nvtrader ingest --json")
    def ingest(
        self,
        *files: Annotated[
            str | Path,
            Field(
                description="CSV or Parquet files, or folders of them, to copy into the source's folder, outside "
                "series into `series`; one of the same name is replaced."
            ),
        ],
        source: Annotated[
            str, Field(description="Landing source of the files, as data/market.yaml names it.")
        ] = "landing",
    ) -> "MarketDocument":
        """Ingest and clean files without training; show rows kept, refused, and coverage, if anything is new.

        Raises:
            StorageError: if a file cannot be read, has a format or size that is refused, or is hidden.
            OSError: if a file cannot be copied.
            PipelineError: if a step fails, such as on a file that holds no prices.
        """
        from nvtrader_pipelines.orchestration.materialize import update_market
        from nvtrader_pipelines.runs.market_state import deliver_prices, market_is_current
        from nvtrader_pipelines.runs.market_summary import summarize_market
        from nvtrader_pipelines.runs.registration import experiment_warnings
        from nvtrader_pipelines.service.documents.market_facts import market_document

        deliver_prices(self.store.home, [Path(file) for file in files], source)
        has_new_bars = not market_is_current(self.store)
        if has_new_bars:
            with silence_libraries():
                update_market(self.store, quiet=self.opened.is_quiet)
        return market_document(summarize_market(self.store), experiment_warnings(self.store), has_new_bars=has_new_bars)

    @operation(
        "nvtrader components",
        "nvtrader components rewards",
        "nvtrader components agents ppo",
        route="GET /api/components",
    )
    def components(
        self,
        family: Annotated[str | None, Field(description="Family to show; default: list all families.")] = None,
        kind: Annotated[str | None, Field(description="Kind, or an alias of it, to show alone.")] = None,
    ) -> "dict[str, tuple[str, ...]] | tuple[ComponentFacts, ...]":
        """List the families of components, or the members of one with fields, defaults and bounds.

        Raises:
            NotFoundError: if there is no such family or member.
        """
        from nvtrader_pipelines.service.documents.catalogue import FAMILIES, family_members

        if family is not None:
            return tuple(family_members(family, kind))
        return {name: tuple(member.kind for member in family_members(name)) for name in FAMILIES}

    @operation("nvtrader schema", "nvtrader schema experiment --output experiment.schema.json", route="GET /api/schema")
    def schema(
        self, name: Annotated[str, Field(description="`experiment` or a family of components.")] = "experiment"
    ) -> dict[str, Any]:
        """Write the JSON Schema of an experiment or a family, for editors that check YAML.

        Raises:
            NotFoundError: if there is no such family.
        """
        from nvtrader_pipelines.service.documents.catalogue import json_schema_of

        return json_schema_of(name)

    @operation("nvtrader status", "nvtrader status --json", route="GET /api/status")
    def status(self) -> "HomeStatus":
        """Show on one screen what trades, runs, waits and failed, the UI, and the next command.

        It reads the home and writes only a pointer file that differs from the audit. Failed checks and stale data take
        seconds to read: `nvtrader notify` and the UI report them.
        """
        from nvtrader_pipelines.notifications.home_status import read_home_status

        return read_home_status(self.store, datetime.now(UTC))

    @operation("nvtrader tables", "nvtrader tables gold.returns", route="GET /api/tables", is_kept=True)
    def tables(
        self, name: Annotated[str | None, Field(max_length=200, description="Table or view to describe.")] = None
    ) -> "Annotated[pl.DataFrame, ListedTable | TableColumn]":
        """List every table with its rows, size and snapshot, and every view; or the columns of one of them.

        Raises:
            NotFoundError: if there is no such table or view.
        """
        import polars as pl

        from nvtrader_pipelines.storage.views.queries import read_columns
        from nvtrader_pipelines.storage.views.view_definitions import VIEWS

        if name:
            return read_columns(self.store, name)
        return pl.concat([self.store.tables.describe_all(), pl.DataFrame({"name": VIEWS})], how="diagonal")

    @operation(
        "nvtrader sql",
        "nvtrader sql 'SELECT policy, period, sharpe FROM evaluation.walk_forward_evaluation' --format csv",
        "nvtrader sql \"COPY rl.equity_curves TO 'exports/curves.parquet'\"",
    )
    def sql(
        self,
        query: Annotated[str, Field(description="SQL query; without one, an interactive shell starts.")],
        *,
        allow_files: Annotated[
            bool, Field(description="Allow the query to read and write any file, and DuckDB's extensions.")
        ] = False,
    ) -> "pl.DataFrame":
        """Query every table with DuckDB SQL; COPY writes below the working folder or the home's exports/.

        Raises:
            StorageError: if there are no tables yet, or the query is invalid or refused.
        """
        from nvtrader_pipelines.storage.views.queries import query_views

        return query_views(self.store, query, allow_files=allow_files)

    @operation("nvtrader report", "nvtrader report --output ~/results.html")
    def report(
        self,
        *,
        output: Annotated[
            str | Path | None, Field(description="File to write; default: warehouse/report.html."), OUTPUT
        ] = None,
    ) -> "HomeReport":
        """Write verdict, scoreboard and tear sheets into one self-contained HTML file.

        Raises:
            OSError: if it cannot be written.
        """
        path = require_file_path(output) if output else self.store.home.report
        from nvtrader_pipelines.service.report import write_report

        return write_report(self.store, path)

    @operation("nvtrader doctor", "nvtrader doctor --json")
    def doctor(self) -> "Annotated[pl.DataFrame, ListedCheck]":
        """Check versions, paths, free disk, damaged files, and whether each account may trade."""
        import polars as pl

        from nvtrader_pipelines.service.doctor import run_checks

        return pl.DataFrame(run_checks(self.store))

    @operation("nvtrader notify", "nvtrader notify --test")
    def notify(
        self,
        *,
        test: Annotated[bool, Field(description="Send a test message to each channel instead.")] = False,
    ) -> "Annotated[pl.DataFrame, ChannelMessage]":
        """Send due notifications: failed runs or checks, waiting plans, stale data, kill switch.

        Each state is sent once per channel, and again only if it has ended and returned. The server of `nvtrader ui`,
        and the commands that train or trade, also send them.

        Raises:
            StorageError: if no channel is configured.
        """
        import polars as pl

        from nvtrader_pipelines.notifications.channels import require_channels
        from nvtrader_pipelines.notifications.send_due import send_test
        from nvtrader_pipelines.service.documents.home_facts import ChannelMessage
        from nvtrader_pipelines.service.due_notifications import send_now

        channels = require_channels(self.store.home)
        if test:
            results = send_test(self.store.home, channels, _now())
            rows = [(name, "test message", problem) for name, problem in results.items()]
        else:
            sending = send_now(self.store, with_runs=True)
            rows = [(name, notification.subject, "") for name, sent in sending.sent.items() for notification in sent]
            rows += [(name, "due", problem) for name, problem in sending.problems.items()]
        return pl.DataFrame(rows, schema=dict.fromkeys(ChannelMessage.model_fields, pl.String), orient="row")

    @operation("nvtrader backup home.tar", "nvtrader backup /mnt/backups --json")
    def backup(
        self,
        target: Annotated[
            str | Path, Field(description="New file, or a folder for a file named after the home and the time.")
        ],
    ) -> "BackupDocument":
        """Write the whole home into one tar file; other commands may run meanwhile.

        The file holds `data/` and `warehouse/` with a SHA-256 of every file. Locks, logs of steps and the views, which
        are published again, are left out, as are ledger and catalog in Postgres, which the command then names.

        Raises:
            StorageError: if the file exists.
        """
        from nvtrader_pipelines.service.documents.home_facts import BackupDocument
        from nvtrader_pipelines.service.progress_display import show_files
        from nvtrader_pipelines.storage.backups.writing import write_backup

        name = f"{self.store.home.root.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar"
        target = Path(target).expanduser().absolute()
        path = require_file_path(target / name if target.is_dir() else target)
        with show_files("backing up", quiet=self.opened.is_quiet) as on_file:
            manifest = write_backup(self.store, path, on_file)
        size = path.stat().st_size
        return BackupDocument(path=path, n_files=len(manifest.files), n_bytes=size, outside=manifest.outside)

    @operation("nvtrader migrate", "nvtrader migrate --back --json")
    def migrate(
        self, *, back: Annotated[bool, Field(description="Copy back to the files of the home.")] = False
    ) -> "Annotated[pl.DataFrame, MovedTable]":
        """Copy what a home stores to where the settings say, or back, and compare rows and digests.

        Stop what writes before. What is copied stays where it was; an interrupted migration can be repeated.

        Raises:
            StorageError: if neither database nor object store is set, one cannot be reached or has other content, or a
                process writes meanwhile.
        """
        from nvtrader_pipelines.components.document import frame_of
        from nvtrader_pipelines.storage.moving import move_databases
        from nvtrader_pipelines.storage.moving_files import move_table_files

        home = self.store.home
        moved = move_table_files(home, back=back)  # before the catalog, which refuses files without it
        return frame_of(moved + (move_databases(home, back=back) if database_url(home) or not moved else []))

    @operation(
        "nvtrader halt",
        'nvtrader halt --reason "the prices look wrong"',
        "nvtrader halt --account coins --reduce",
        route="POST /api/halt",
        writes=True,
    )
    def halt(
        self, *, reason: AuditReason = NO_REASON, account: OneAccount = None, reduce: Reduce = False
    ) -> "HaltDocument":
        """Stop trading and runs: place no order, cancel open orders at brokers, interrupt runs.

        Trainings, walks, replays and forward runs end at their next step of progress, and can be resumed. Of one
        account only its trading stops. Reduced trading cancels open orders, too, and then places those orders only that
        grow no position; trainings continue.

        If an order may still be open, the command names it and exits with 1; trading is stopped all the same. If the
        audit is damaged or the disk is full, orders are cancelled too, and the command exits with 3 and the reason.

        Raises:
            StorageError: if the audit is damaged or the disk is full; trading is stopped if that was possible.
        """
        document, failure = self.stop_trading(reason, account=account, reduce=reduce)
        if failure is not None:
            raise failure
        return document

    def stop_trading(
        self,
        reason: str,
        on_halt: "Callable[[str], None]" = lambda _: None,
        *,
        account: str | None = None,
        reduce: bool = False,
    ) -> "tuple[HaltDocument, StorageError | None]":
        """Stop or reduce trading, tell `on_halt` so, and cancel open orders; return what failed, too."""
        from nvtrader_pipelines.desk.halt import Scope, stop_trading
        from nvtrader_pipelines.service.documents.halt_facts import HaltDocument

        if account is not None:
            _require_account(self.store, account)
        scope = Scope(account, "reducing" if reduce else "halted")
        outcome = stop_trading(self.store, self.opened.by, reason, _now, on_halt, scope)
        document = HaltDocument.of_switch(
            self.store.switch_of(account),
            message=outcome.message,
            cancelled=tuple(outcome.cancelled),
            still_open=outcome.still_open,
        )
        return document, outcome.failure

    @operation(
        "nvtrader resume",
        'nvtrader resume --reason "the prices are right again"',
        "nvtrader resume --account coins",
        route="POST /api/resume",
        writes=True,
    )
    def resume(self, *, reason: AuditReason = NO_REASON, account: OneAccount = None) -> "HaltDocument":
        """Release the kill switch: trading resumes at the next step, a run when it is started again.

        Raises:
            StorageError: if the kill switch cannot be removed.
        """
        from nvtrader_pipelines.desk.halt import resume
        from nvtrader_pipelines.service.documents.halt_facts import HaltDocument

        if account is not None:
            _require_account(self.store, account)
        message = resume(self.store, self.opened.by, reason, _now, account)
        return HaltDocument.of_switch(self.store.switch_of(account), message=message)


def _require_account(store: Store, account: str) -> None:
    """Raise unless there is an account of this name; one whose file is damaged can be stopped, too."""
    from nvtrader_pipelines.desk.account_access import account_names, read_account

    if account not in account_names(store.home):
        read_account(store.home, account)


def restore_home(file: Path, folder: Path, *, is_quiet: bool = False) -> "RestoredHome":
    """Restore a backup as a home in a new folder, after every file was verified by its digest.

    Runs that were under way are interrupted in the restored home; the next command that needs them resumes them.

    Raises:
        StorageError: if the folder is not empty, or the backup is damaged.
    """
    from nvtrader_pipelines.orchestration.instance import close_copied_runs
    from nvtrader_pipelines.service.documents.home_facts import RestoredHome
    from nvtrader_pipelines.service.progress_display import show_files
    from nvtrader_pipelines.storage.backups.restoring import restore_backup
    from nvtrader_pipelines.storage.views.publishing import publish

    home = Home.at(folder)
    with show_files("restoring", quiet=is_quiet) as on_file:
        manifest = restore_backup(file, home.root, on_file)
    store = Store(home)
    interrupted_runs = tuple(close_copied_runs(store))
    publish(store)
    return RestoredHome(
        home=home.root,
        backup_of=manifest.root,
        created_at=manifest.created_at,
        n_files=len(manifest.files),
        interrupted_runs=interrupted_runs,
        outside=manifest.outside,
    )


def _now() -> datetime:
    """Current time; defined here, since `runs.lifecycle` takes seconds to import."""
    return datetime.now(UTC)
