"""Checks of the installation, the home folder and the accounts."""

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import psutil

from nvtrader_pipelines.components.ray_executor import LOCAL, NOT_INSTALLED, require_reachable
from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.desk.account_access import account_names, read_account
from nvtrader_pipelines.desk.bot_files import read_bots
from nvtrader_pipelines.desk.traded_market import require_ready
from nvtrader_pipelines.desk.traded_policy import read_traded
from nvtrader_pipelines.execution.brokers.account_spec import KEY_ID, SECRET_KEY
from nvtrader_pipelines.feedback.decisions import find_refused_lines
from nvtrader_pipelines.llm.endpoint import KEY_VARIABLE
from nvtrader_pipelines.notifications.channels import DEFAULT_VARIABLE, read_channels
from nvtrader_pipelines.promotion.active_policy import (
    ActivePolicy,
    find_pointer_difference,
    last_activation,
    read_active_run,
    read_every_active,
)
from nvtrader_pipelines.promotion.eligibility import code_mismatch
from nvtrader_pipelines.promotion.promote import read_gate
from nvtrader_pipelines.promotion.recency import eligibility_message
from nvtrader_pipelines.promotion.rounds import newer_run_message
from nvtrader_pipelines.research.recorded_session import find_damaged_sessions
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.scoreboard.contests import read_contests
from nvtrader_pipelines.storage.code_server import REMEDY, unreachable_url
from nvtrader_pipelines.storage.compliance_files import read_compliance
from nvtrader_pipelines.storage.errors import DamagedFileError, StorageError, UnavailableError
from nvtrader_pipelines.storage.file_problems import find_damage, has_catalog, mlflow_problem
from nvtrader_pipelines.storage.iceberg.damaged_tables import find_damaged_tables
from nvtrader_pipelines.storage.ledger.database import ledger_url
from nvtrader_pipelines.storage.llm_files import read_endpoint, read_key
from nvtrader_pipelines.storage.notification_record import NotificationRecordFile
from nvtrader_pipelines.storage.object_store import find_store_problem
from nvtrader_pipelines.storage.postgres import find_problem
from nvtrader_pipelines.storage.settings import database_url, read_settings
from nvtrader_pipelines.storage.specs import read_experiments, read_market
from nvtrader_pipelines.storage.store import Store

PACKAGES = ("nvtrader-pipelines", "dagster", "duckdb", "pyiceberg", "polars", "stable-baselines3", "torch", "mlflow")
EXTRAS = {
    "yfinance": "the yahoo source needs it: pip install 'nvtrader-pipelines[yahoo]'",
    "alpaca-py": "accounts at Alpaca need it: pip install 'nvtrader-pipelines[alpaca]'",
}
MIN_GIB = 2.0  # free disk for a warehouse of the sample market; free memory for training


@dataclass(frozen=True)
class CheckResult:
    """Result of one check: a line of `nvtrader doctor`."""

    check: str
    result: str
    problem: str = ""  # with what to do; empty if there is none


def installed_version(package: str) -> str:
    """Version of an installed package; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def run_checks(store: Store) -> list[CheckResult]:
    """Check versions, paths, disk, memory, files, the active policy, the accounts and the audit."""
    return [result for check in CHECKS for result in run_check(check, store)]


def run_check(check: Callable[[Store], list[CheckResult]], store: Store) -> list[CheckResult]:
    """Results of a check, or the problem that prevents it, such as a damaged ledger."""
    try:
        return check(store)
    except StorageError as error:
        name = check.__name__.removeprefix("check_").replace("_", " ")
        return [CheckResult(name, "cannot be checked", one_line(error))]


def one_line(error: Exception) -> str:
    """Message of an error in one line."""
    return " ".join(str(error).split())


def check_packages(_store: Store) -> list[CheckResult]:
    """Check that the packages are installed; extras may be missing."""
    missing = "not installed: run `make install`, or install the wheel again"
    versions = {name: installed_version(name) for name in (*PACKAGES, *EXTRAS)}
    return [
        CheckResult("python", platform.python_version()),
        *(CheckResult(name, versions[name], "" if versions[name] else missing) for name in PACKAGES),
        *(CheckResult(f"{name} (extra)", versions[name] or f"not installed; {hint}") for name, hint in EXTRAS.items()),
    ]


def check_folders(store: Store) -> list[CheckResult]:
    """Check the folders of the home, free disk and free memory."""
    home, views = store.home, store.home.duckdb_file
    free, memory = shutil.disk_usage(home.root).free / 2**30, psutil.virtual_memory().available / 2**30
    return [
        CheckResult("home", str(home.root)),
        CheckResult("experiments", str(home.experiments), "" if home.experiments.is_dir() else "missing: create it"),
        CheckResult("landing", str(home.landing), "" if home.landing.is_dir() else "missing: create it"),
        CheckResult("warehouse", str(home.warehouse) if home.warehouse.is_dir() else f"{home.warehouse} (not built)"),
        CheckResult("views", str(views) if views.exists() else "none yet: run `nvtrader materialize`"),
        CheckResult("free disk", f"{free:.1f} GiB", "" if free >= MIN_GIB else f"less than {MIN_GIB} GiB: make room"),
        CheckResult("free memory", f"{memory:.1f} GiB", "" if memory >= MIN_GIB else "training needs about 2 GiB"),
    ]


def check_databases(store: Store) -> list[CheckResult]:
    """Check that the databases and the object store answer; files are checked with the others."""
    home, results = store.home, []
    for part, url in (("ledger", ledger_url(home)), ("catalog", database_url(home))):
        if url is None or url.get_backend_name() == "sqlite":
            results.append(CheckResult(part, str(url.database if url else home.catalog)))
        else:
            name = f"{url.render_as_string(hide_password=True)}, schema {part}"
            results.append(CheckResult(part, name, find_problem(part, url, part)))
    if uri := read_settings(home).warehouse_uri:
        results.append(CheckResult("object store", uri, find_store_problem(uri)))
    if url := database_url(home):
        name = f"{url.render_as_string(hide_password=True)}, schemas book_<account> and trading"
        results.append(CheckResult("books and switch", name, find_problem("books", url, "trading")))
    return results


def check_executor(store: Store) -> list[CheckResult]:
    """Check that the workers of trainings can start; starts none."""
    settings, problems = read_settings(store.home), []
    if settings.executor == "processes":
        return [CheckResult("executor", "processes of this machine")]
    if not (installed := installed_version("ray")):
        problems.append(NOT_INSTALLED)
    if settings.ray_address != LOCAL:
        try:
            require_reachable(settings.ray_address)
        except ValueError as error:
            problems.append(str(error))
    name = f"ray {installed or 'not installed'}, address {settings.ray_address}"
    return [CheckResult("executor", name, "; ".join(problems))]


def check_files(store: Store) -> list[CheckResult]:
    """Check that files can be read; a problem that several reads meet is one row."""
    problems = {one_line(error): isinstance(error, UnavailableError) for error in find_problems(store)}
    damaged = [
        CheckResult("files", "cannot be checked" if is_unavailable else "damaged", problem)
        for problem, is_unavailable in problems.items()
    ]
    return damaged or [CheckResult("files", "databases, states, tables and settings can be read")]


def find_problems(store: Store) -> Iterator[StorageError]:
    """Find the problems of all files but those of accounts and the audit."""
    home = store.home
    yield from find_damage(home)
    in_file = home.mlflow_database.exists() and not database_url(home)
    if in_file and (problem := mlflow_problem(home.mlflow_database)):
        remedy = "the next training renames it and begins MLflow's history anew"
        yield DamagedFileError(home.mlflow_database, problem, remedy)
    if has_catalog(home):
        yield from find_damaged_tables(store.tables)
    yield from find_damaged_sessions(store)
    try:
        runs = store.ledger.runs().filter(kind="walk_forward", status="done").select("partition_key", "run_id").rows()
        yield from map(StorageError, read_experiments(home).problems.values())
    except StorageError as error:
        yield error
        return
    settings = [partial(read, home) for read in (read_market, read_contests, read_gate, read_compliance)]
    for read in (*settings, *(partial(_require_policies, store, *run) for run in runs)):
        try:
            read()
        except StorageError as error:
            yield error


def _require_policies(store: Store, partition_key: str, run_id: str) -> None:
    store.policies.require_untampered(store.policies.read_sealed(partition_key, run_id))


def check_kill_switch(store: Store) -> list[CheckResult]:
    """Check the kill switch; an engaged one is no problem, since a person engaged it."""
    trading = store.switch.state()
    engaged = {"halted": "engaged", "reducing": "reducing", "active": "not engaged"}[trading.state]
    return [
        CheckResult("kill switch", f"{engaged}: {trading.reason}; {store.switch.remedy}" if trading.reason else engaged)
    ]


def check_ui(store: Store) -> list[CheckResult]:
    """Check that the code server of a running UI can be reached."""
    url = unreachable_url(store.home.dagster)
    problem = f"its code server cannot be reached, so no schedule or sensor runs: {REMEDY}"
    return [CheckResult("ui", url, problem)] if url else []


def check_notifications(store: Store) -> list[CheckResult]:
    """Check every channel's URL and last delivery; sends nothing."""
    channels, failed = read_channels(store.home), NotificationRecordFile(store.home).read().failed_deliveries
    if not channels:
        return [CheckResult("notifications", f"no channel: set ${DEFAULT_VARIABLE} or write data/notifications.yaml")]
    results = []
    for name, channel in channels.items():
        unset = "" if channel.url else f"${channel.url_variable} is not set: export the channel's URL"
        last = f"not accepted at {failed[name].at:%Y-%m-%d %H:%M} UTC: {failed[name].reason}" if name in failed else ""
        results.append(CheckResult(f"channel {name}", f"${channel.url_variable}", unset or last))
    return results


def check_language_model(store: Store) -> list[CheckResult]:
    """Check that the endpoint of language models is valid and its client is installed; nothing is sent."""
    endpoint = read_endpoint(store.home)
    if endpoint is None:
        return [CheckResult("language model", "not configured")]
    names = f"{endpoint.base_url}, model {endpoint.model}, vision model {endpoint.vision_model}"
    key, installed = f"{KEY_VARIABLE} {'set' if read_key() else 'not set'}", installed_version("openai")
    problem = "" if installed else "calls need the package openai: pip install 'nvtrader-pipelines[llm]'"
    return [CheckResult("language model", f"{names}, {key}, openai {installed or 'not installed'}", problem)]


def check_active_policy(store: Store) -> list[CheckResult]:
    """Check the active policies, of all accounts, of each and of bots, as `_check_activation` does."""
    results = [result for active in read_every_active(store) for result in _check_activation(store, active)]
    return results or [CheckResult("active policy", "none yet: `nvtrader policies activate NAME`")]


def _check_activation(store: Store, active: ActivePolicy) -> list[CheckResult]:
    """Check a policy that trades: its files, its code, how long it may trade, and newer runs."""
    run, newer = read_active_run(store, active), newer_run_message(store, active)
    of = f"the bot {active.bot}: " if active.bot else f"the account {active.account}: " if active.account else ""
    result = f"{of}{active.policy} of run {active.run_id}, activated by {active.by} on {active.activated_at:%Y-%m-%d}"
    changed = ", ".join(store.policies.find_tampered_files(run)["file"])
    problem = f"files changed since the activation: {changed}; restore them" if changed else ""
    return [
        CheckResult("active policy", result, problem),
        CheckResult("its code digest", active.code_version, code_mismatch(store, run) or ""),
        CheckResult("it may trade", eligibility_message(store, active)),
        *([CheckResult("a newer run", newer)] if newer else []),
    ]


def check_pointer_file(store: Store) -> list[CheckResult]:
    """Check that the pointer file names the active policy; without one there is no file."""
    active = last_activation(store)
    if difference := find_pointer_difference(store, active):
        problem = f"{difference.sentence}; the next `nvtrader policies` writes it"
        return [CheckResult("pointer file", difference.kind, problem)]
    return [CheckResult("pointer file", str(store.home.active_policy_file))] if active else []


def check_accounts(store: Store) -> list[CheckResult]:
    """Check of every account whether the active policy may trade it, and the keys of brokers."""
    return [result for name in account_names(store.home) for result in check_account(store, name)]


def check_account(store: Store, name: str) -> list[CheckResult]:
    """Check that the active policy may trade an account, and the keys of a broker."""
    try:
        kind = read_account(store.home, name).kind
    except StorageError as error:
        return [CheckResult(f"account {name}", "cannot be read", one_line(error))]
    switch, problem = store.switch_of(name), ""
    trading = switch.state()
    restriction = "not traded" if trading.halt_reason else "only reduced"
    state = f"{restriction}: {trading.reason}; {switch.remedy}" if trading.reason else "may be traded"
    try:
        if active := read_traded(store, name):
            require_ready(store, active, name, now())
        else:
            state = "not traded: no policy is active"
    except (StorageError, ValueError) as error:
        state, problem = "may not be traded", one_line(error)
    keys = [check_broker_keys(name)] if kind == "alpaca" else []
    return [CheckResult(f"account {name}", f"{kind}, {state}", problem), *keys]


def check_broker_keys(account: str) -> CheckResult:
    """Check that the keys of an Alpaca account are set and its client is installed."""
    missing = [name for name in (KEY_ID, SECRET_KEY) if not os.environ.get(name)]
    problems = [f"{' and '.join(missing)} not set: export them"] if missing else []
    problems += [] if installed_version("alpaca-py") else ["alpaca-py is not installed"]
    states = [f"{name} {'not set' if name in missing else 'set'}" for name in (KEY_ID, SECRET_KEY)]
    return CheckResult(f"keys of {account}", ", ".join(states), "; ".join(problems))


def check_bots(store: Store) -> list[CheckResult]:
    """Check that the files of bots can be used; a row per file that cannot."""
    problems = read_bots(store.home).problems
    return [CheckResult(f"bot {path.stem}", "cannot be used", problem) for path, problem in problems.items()]


def check_audit(store: Store) -> list[CheckResult]:
    """Check that every row of the audit is as it was appended."""
    state = store.audit.verify()
    torn = f", {len(state.set_aside)} torn rows set aside" if state.set_aside else ""
    rows = f"{state.n_rows} rows, chain {short_id(state.chain)}{torn}" if state.n_rows else "no row yet"
    return [CheckResult("audit", rows)]


def check_decisions(store: Store) -> list[CheckResult]:
    """Check that every line of the decisions' file is as in the audit; without a line there is no check."""
    path = store.decisions.path
    if not path.exists():
        return []
    refused = find_refused_lines(store)
    if not refused:
        return [CheckResult("decisions", str(path))]
    more = f", and {len(refused) - 1} more lines are refused" if len(refused) > 1 else ""
    problem = (
        f"{refused[0].reason}{more}; the audit counts: remove the line, the next extraction writes what is missing"
    )
    return [CheckResult("decisions", f"line {refused[0].line} of {path}", problem)]


CHECKS = (
    *(check_packages, check_folders, check_databases, check_executor, check_files, check_kill_switch),
    *(check_ui, check_notifications, check_language_model, check_active_policy, check_pointer_file),
    *(check_accounts, check_bots, check_audit, check_decisions),
)
