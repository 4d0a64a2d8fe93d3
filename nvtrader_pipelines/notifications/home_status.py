"""State of a home on one screen: what trades, runs, waits and failed, and the next command."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from operator import attrgetter

import polars as pl
from pydantic import computed_field

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.desk.account_access import account_names
from nvtrader_pipelines.desk.traded_policy import BotState, read_bot_states
from nvtrader_pipelines.notifications.home_states import home_states
from nvtrader_pipelines.notifications.notification import Kind, Notification
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, read_active
from nvtrader_pipelines.research.session_documents import SessionSummary, running_sessions
from nvtrader_pipelines.runs.run_tables import JUDGEMENT_STARTS, WALK_FORWARD
from nvtrader_pipelines.storage.code_server import running_url
from nvtrader_pipelines.storage.file_problems import has_catalog
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.ledger.database import Database, ledger_url
from nvtrader_pipelines.storage.ledger.run_rows import death_reason
from nvtrader_pipelines.storage.notification_record import NotificationRecordFile
from nvtrader_pipelines.storage.specs import read_experiments
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import MARKET_PANEL, QUARANTINE
from nvtrader_pipelines.storage.training_curve_file import CurvePoint, read_points

KINDS: tuple[Kind, ...] = ("waiting_plan", "unreachable_ui")  # stale data take a second to read
FAILED = ("failed", "interrupted")
WEEK, YEAR = timedelta(days=7), timedelta(days=365)
_Markets = Mapping[str, tuple[date, date]]  # first and last session of ingested ones, by source


@dataclass(frozen=True)
class AccountClose:
    """Account at its last close."""

    account: str
    session: date
    value: float  # in the account's currency
    equity: float  # as a multiple of the opening
    ruin: str  # that the account lost everything; empty if it has not
    in_replay: bool  # whether a replay traded it last


@dataclass(frozen=True)
class RunState:
    """Run in progress, or the last run of its version and kind if that ended early."""

    run_id: str
    partition_key: str
    status: str  # running, failed or interrupted
    state: str  # phase (training, testing or judging) and the last message, or why it ended
    at: datetime
    curve: tuple[CurvePoint, ...] = ()  # of the fold and seed that reported last; empty unless it trains


@dataclass(frozen=True)
class NextStep:
    """What to do next: a sentence, the command that does it, and where the page does it."""

    sentence: str
    command: str
    button: str = ""  # its text; empty if the page has no place for it
    link: str = ""


class HomeStatus(Document):
    """State of a home."""

    home: str
    active: ActivePolicy | None
    bots: Mapping[str, BotState]  # by name
    accounts: tuple[AccountClose, ...]  # opened ones
    halted: str | None  # why the kill switch is engaged
    sources: tuple[str, ...]  # of ingested markets
    runnable: tuple[str, ...]  # unarchived experiments on these
    trained: str  # experiment of the newest completed run; empty without one
    replay_days: tuple[date, date] | None  # for a loaded policy that has not traded, if its market ended a week ago
    running: tuple[RunState, ...]
    searches: tuple[SessionSummary, ...]  # running ones
    waiting_plans: tuple[Notification, ...]
    refused_files: Mapping[str, str]  # reason by file
    failed_runs: tuple[RunState, ...]
    failed_commands: Mapping[str, str]  # reason by command, until it succeeds
    ui: str  # URL; empty if none runs
    ui_problems: tuple[Notification, ...]

    @computed_field
    @property
    def next_step(self) -> NextStep:
        """What helps most now."""
        if self.halted:
            return NextStep("Trading is halted", "nvtrader resume --reason WHY")
        if self.ui_problems:
            return NextStep("The Dagster UI does not answer", "nvtrader doctor")
        if self.waiting_plans:
            show = f"nvtrader plans show {self.waiting_plans[0].identity}"
            return NextStep("A plan waits for you", show, "Decide", "#decisions")
        if self.failed_runs:
            return self._after_failure(self.failed_runs[0])
        if self.failed_commands:
            return NextStep("A command failed: try it again", next(iter(self.failed_commands)))
        if self.refused_files:
            name = next(iter(self.refused_files))
            is_experiment = name.endswith((".yaml", ".yml"))
            check = "nvtrader experiments validate" if is_experiment else "nvtrader ingest"
            return NextStep(f"The file {name} was refused", check)
        if self.active is None and set(self.bots.values()) - {"stopped"}:
            command = "nvtrader bots" if self.ui else "nvtrader ui"
            return NextStep(
                f"Bots trade {'by themselves' if self.ui else 'only while the UI runs'}", command, "See them", "#bots"
            )
        return self._after_training() if self.active is None else self._after_loading(self.active)

    def _after_failure(self, run: RunState) -> NextStep:
        name, link = run.partition_key.partition("@")[0], f"/lab/runs/{run.run_id}"
        if run.status == "interrupted":
            return NextStep(f"{name} was interrupted: resume it", f"nvtrader experiments run {name}", "See run", link)
        return NextStep(f"{name} failed", f"nvtrader runs show {short_id(run.run_id)}", "See run", link)

    def _after_training(self) -> NextStep:
        if self.running:
            return NextStep("A policy is being trained", "nvtrader runs", "Watch", "#training")
        if self.searches:
            return NextStep("A search is under way", "nvtrader research status", "Watch", "#autoresearch")
        if self.trained:
            load = f"nvtrader policies activate {self.trained}"
            return NextStep("No policy trades: load one", load, "Load", "#policies")
        if not self.sources:
            return NextStep("No market is ingested yet", "nvtrader ingest")
        if not self.runnable:
            new = f"nvtrader experiments new NAME --source {self.sources[0]}"
            return NextStep("No experiment fits your market: write one", new, "Open the builder", "/lab/build")
        one, *others = self.runnable
        train = "materialize" if others else f"experiments run {one}"
        return NextStep("No policy is trained yet", f"nvtrader {train}", "Train", "#training")

    def _after_loading(self, active: ActivePolicy) -> NextStep:
        if self.replay_days:
            first, last = self.replay_days
            ended = f"{active.policy} is loaded; its market ends on {last}: replay a history"
            return NextStep(ended, f"nvtrader trade --from {first} --to {last}")
        if not self.accounts:
            first = f"{active.policy} is loaded and has not traded: run the evening now"
            return NextStep(first, "nvtrader trade", "Run the evening", "#job-eod_rebalance")
        account = next((account for account in self.accounts if not account.in_replay), self.accounts[0])
        link = f"/accounts/{account.account}"
        if account.in_replay:
            replayed = f"A replay traded {account.account} to {account.session}: continue it, or trade on without days"
            return NextStep(replayed, f"nvtrader trade --account {account.account}", "See the account", link)
        if self.ui:
            return NextStep(f"{active.policy} trades by itself", "nvtrader portfolio", "See the account", link)
        return NextStep(f"{active.policy} trades only while the UI runs", "nvtrader ui", "See the account", link)


def read_home_status(store: Store, at: datetime) -> HomeStatus:
    """Read the state of a home; only a pointer file that differs is written.

    Raises:
        StorageError: if a file of the home is damaged.
    """
    home = store.home
    states, runs = home_states(store, at, KINDS), _read_runs(store)
    record, active = NotificationRecordFile(home).read(), read_active(store)
    accounts, markets = _read_accounts(store), _read_markets(store)
    return HomeStatus(
        home=str(home.root),
        active=active,
        accounts=accounts,
        bots=read_bot_states(store),
        halted=store.switch.halt_reason(),
        sources=tuple(sorted(markets)),
        runnable=_runnable(store, markets),
        trained=_last_trained(store),
        replay_days=_replay_days(store, active, markets, at) if active and not accounts else None,
        running=tuple(run for run in runs if run.status == "running"),
        searches=running_sessions(store),
        waiting_plans=tuple(states.get("waiting_plan", ())),
        refused_files=_read_refused_files(store),
        failed_runs=tuple(run for run in runs if run.status in FAILED),
        failed_commands={command: failure.reason for command, failure in record.failed_commands.items()},
        ui=running_url(home.dagster),
        ui_problems=tuple(states.get("unreachable_ui", ())),
    )


def _read_accounts(store: Store) -> tuple[AccountClose, ...]:
    closes = ((name, store.book(name).last()) for name in account_names(store.home))
    fields = attrgetter("session", "value", "equity", "ruin", "in_replay")
    return tuple(AccountClose(name, *fields(last)) for name, last in closes if last)


def _read_markets(store: Store) -> _Markets:
    if not has_catalog(store.home):  # reading tables would create it
        return {}
    rows = store.tables.read_whole(MARKET_PANEL, ["source", "first_session", "last_session"])
    return {source: (first, last) for source, first, last in rows.iter_rows()}


def _replay_days(store: Store, active: ActivePolicy, markets: _Markets, at: datetime) -> tuple[date, date] | None:
    """Last year of a market that has ended, at most its second half, which tests usually cover."""
    first, last = markets.get(store.ledger.source_of(active.partition_key), (at.date(), at.date()))
    return None if last > at.date() - WEEK else (max(last - YEAR, first + (last - first) / 2), last)


def _has_ledger(store: Store) -> bool:
    """Whether there is a ledger; opening it would create it."""
    return Database.connect(ledger_url(store.home)).revision() is not None


def _runnable(store: Store, sources: Collection[str]) -> tuple[str, ...]:
    archived = store.ledger.archived_names() if _has_ledger(store) else ()
    specs = read_experiments(store.home).specs
    return tuple(spec.name for spec in specs if spec.market.source in sources and spec.name not in archived)


def _last_trained(store: Store) -> str:
    keys = store.ledger.runs().filter(status="done")["partition_key"] if _has_ledger(store) else ()
    return next((key.partition("@")[0] for key in keys), "")


def running_runs(store: Store) -> Sequence[RunState]:
    """Runs in progress, with the learning curve of each training."""
    return [run for run in _read_runs(store) if run.status == "running"]


def _read_runs(store: Store) -> Sequence[RunState]:
    """Last runs by version and kind that are not done, newest first, without archived experiments."""
    if not _has_ledger(store):
        return ()
    archived = store.ledger.archived_names()
    last = store.ledger.runs(with_worlds=True).unique(["partition_key", "kind"], keep="first", maintain_order=True)
    runs = map(store.ledger.run, last.filter(pl.col("status") != "done")["run_id"])
    return [_run_state(store, run) for run in runs if run.partition_key.partition("@")[0] not in archived]


def _run_state(store: Store, run: LedgerRun) -> RunState:
    if run.status != "running":
        return RunState(run.run_id, run.partition_key, run.status, run.message or "", run.finished_at or run.started_at)
    if reason := death_reason(run):
        return RunState(run.run_id, run.partition_key, "interrupted", reason, run.started_at)
    events = store.ledger.events(run.run_id)
    state, at = "", run.started_at
    if len(events):
        state, at = f"{_phase(run.kind, events)}: {events['message'][-1]}", events["timestamp"][-1]
    curve = latest_curve(read_points(store.home, run.run_id))
    return RunState(run.run_id, run.partition_key, run.status, state, at, tuple(curve))


def _phase(kind: str, events: pl.DataFrame) -> str:
    """Phase of a running run; `done` is the end of its training, since that of its judgement closes it."""
    starts = events.filter(stage="start")["message"]
    if len(starts) and starts[-1].endswith(JUDGEMENT_STARTS):
        return "judging"
    if kind == "world":
        return "training"
    return "testing" if kind != WALK_FORWARD or "done" in events["stage"] else "training"


def latest_curve(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Points of the fold and seed that reported last, by timesteps."""
    if not points:
        return []
    last = points[-1]
    curve = [point for point in points if (point.fold, point.seed) == (last.fold, last.seed)]
    return sorted(curve, key=lambda point: point.timesteps)


def _read_refused_files(store: Store) -> dict[str, str]:
    """Reasons of experiments that are not valid, and of deliveries refused as a whole."""
    refused = {path.name: problem for path, problem in read_experiments(store.home).problems.items()}
    if not has_catalog(store.home):  # reading tables would create it
        return refused
    rows = store.tables.read(QUARANTINE, {"line": [0]}, ["file", "reason"])  # line 0: the whole file
    return refused | dict(rows.unique("file", keep="first", maintain_order=True).sort("file").iter_rows())
