"""Checks of the installation, the home folder and the accounts."""

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import psutil

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
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
    """Check versions, paths, disk, memory, the active policy, the accounts and the audit."""
    home = store.home
    free = shutil.disk_usage(home.root).free / 2**30
    memory = psutil.virtual_memory().available / 2**30
    missing = "not installed: run `make install`, or install the wheel again"
    results = [CheckResult("python", platform.python_version())]
    versions = {name: installed_version(name) for name in (*PACKAGES, *EXTRAS)}
    results += [CheckResult(name, versions[name], "" if versions[name] else missing) for name in PACKAGES]
    results += [
        CheckResult(f"{name} (extra)", versions[name] or f"not installed; {hint}") for name, hint in EXTRAS.items()
    ]
    results += [
        CheckResult("home", str(home.root)),
        CheckResult("experiments", str(home.experiments), "" if home.experiments.is_dir() else "missing: create it"),
        CheckResult("landing", str(home.landing), "" if home.landing.is_dir() else "missing: create it"),
        CheckResult("warehouse", str(home.warehouse) if home.warehouse.is_dir() else f"{home.warehouse} (not built)"),
        CheckResult(
            "views",
            str(views) if (views := store.home.duckdb_file).exists() else "none yet: run `nvtrader materialize`",
        ),
        CheckResult("free disk", f"{free:.1f} GiB", "" if free >= MIN_GIB else f"less than {MIN_GIB} GiB: make room"),
        CheckResult("free memory", f"{memory:.1f} GiB", "" if memory >= MIN_GIB else "training needs about 2 GiB"),
    ]
    damaged = [CheckResult("files", "damaged", " ".join(str(error).split())) for error in find_problems(store)]
    results += damaged or [CheckResult("files", "databases, states, tables and settings can be read")]
    results += [check_kill_switch(store)]
    results += [*check_ui(store.home), *check_notifications(store.home), check_language_model(store.home)]
    checks = (check_active_policy, check_pointer, check_accounts, lambda store: [check_audit(store)], check_decisions)
    return [*results, *(result for check in checks for result in _run_check(check, store))]


def repair_home(home: Home) -> list[CheckResult]:
    """Rebuild damaged files that can be rebuilt, and a pointer file that differs; one line per file."""
    from nvtrader_pipelines.promotion.active_policy import mirror_pointer
    from nvtrader_pipelines.storage.damage.repairs import repair

    repaired = [CheckResult("repaired", f"{error.path} {error.problem}: rebuilt") for error in repair(home)]
    difference = mirror_pointer(Store(home))
    return [*repaired, *([CheckResult("repaired", f"{difference.sentence}: rewritten")] if difference else [])]


def find_problems(store: Store) -> Iterator[StorageError]:
    """Find the problems of all files but those of accounts and the audit."""
    from nvtrader_pipelines.promotion.promote import read_gate
    from nvtrader_pipelines.research.recorded_session import find_damaged_sessions
    from nvtrader_pipelines.scoreboard.contests import read_contests
    from nvtrader_pipelines.storage.compliance_files import read_compliance
    from nvtrader_pipelines.storage.damage.home_check import find_damage
    from nvtrader_pipelines.storage.damage.table_check import find_damaged_tables
    from nvtrader_pipelines.storage.specs import read_experiments, read_market

    home, damaged = store.home, list(find_damage(store.home))
    yield from damaged
    if home.catalog.exists() and home.catalog not in {error.path for error in damaged}:
        yield from find_damaged_tables(store.tables)
    for read in (read_market, read_contests, read_gate, read_compliance):
        try:
            read(home)
        except StorageError as error:
            yield error
    yield from find_damaged_sessions(store)
    try:
        for problem in read_experiments(home).problems.values():
            yield StorageError(problem)
        yield from _find_damaged_policies(store)
    except StorageError as error:
        if not damaged:
            yield error


def _find_damaged_policies(store: Store) -> Iterator[StorageError]:
    """Find damaged policy files of the runs in the ledger that trained some."""
    for partition_key, run_id in (
        store.ledger.runs().filter(kind="walk_forward", status="done").select("partition_key", "run_id").iter_rows()
    ):
        try:
            store.policies.require_untampered(store.policies.read_sealed(partition_key, run_id))
        except StorageError as error:
            yield error


def _run_check(check: Callable[[Store], list[CheckResult]], store: Store) -> list[CheckResult]:
    """Results of a check, or the problem that prevents it, such as a damaged ledger."""
    try:
        return check(store)
    except StorageError as error:
        return [CheckResult("policy and accounts", "cannot be checked", " ".join(str(error).split()))]


def check_kill_switch(store: Store) -> CheckResult:
    """Check the kill switch; an engaged one is no problem, since a person engaged it."""
    switch = store.switch
    reason = switch.halt_reason()
    return CheckResult("kill switch", f"engaged: {reason}; {switch.remedy}" if reason else "not engaged")


def check_ui(home: Home) -> list[CheckResult]:
    """Check that the code server of a running UI can be reached."""
    from nvtrader_pipelines.storage.code_server import REMEDY, unreachable_url

    url = unreachable_url(home.dagster)
    problem = f"its code server cannot be reached, so no schedule or sensor runs: {REMEDY}"
    return [CheckResult("ui", url, problem)] if url else []


def check_notifications(home: Home) -> list[CheckResult]:
    """Check every channel's URL and last delivery; sends nothing."""
    from nvtrader_pipelines.notifications.channels import DEFAULT_VARIABLE, read_channels
    from nvtrader_pipelines.storage.notification_record import NotificationRecordFile

    check = "notifications"
    try:
        channels, failed = read_channels(home), NotificationRecordFile(home).read().failed_deliveries
    except StorageError as error:
        return [CheckResult(check, "cannot be sent", str(error))]
    if not channels:
        return [CheckResult(check, f"no channel: set ${DEFAULT_VARIABLE} or write data/notifications.yaml")]
    results = []
    for name, channel in channels.items():
        unset = "" if channel.url else f"${channel.url_variable} is not set: export the channel's URL"
        last = f"not accepted at {failed[name].at:%Y-%m-%d %H:%M} UTC: {failed[name].reason}" if name in failed else ""
        results.append(CheckResult(f"channel {name}", f"${channel.url_variable}", unset or last))
    return results


def check_active_policy(store: Store) -> list[CheckResult]:
    """Check the active policy: its files, its code, how long it may trade, and newer runs."""
    from nvtrader_pipelines.promotion.active_policy import last_activation, read_active_run
    from nvtrader_pipelines.promotion.eligibility import code_mismatch
    from nvtrader_pipelines.promotion.recency import eligibility_message
    from nvtrader_pipelines.promotion.rounds import newer_run_message

    check = "active policy"
    try:
        active = last_activation(store)
        if active is None:
            return [CheckResult(check, "none yet: `nvtrader policies activate NAME`")]
        run = read_active_run(store, active)
        broken = store.policies.find_tampered_files(run)
        newer = newer_run_message(store, active)
    except StorageError as error:
        return [CheckResult(check, "cannot be used", str(error))]
    result = f"{active.policy} of run {active.run_id}, activated by {active.by} on {active.activated_at:%Y-%m-%d}"
    changed = ", ".join(broken["file"])
    return [
        CheckResult(check, result, f"files changed since the activation: {changed}; restore them" if changed else ""),
        CheckResult("its code digest", active.code_version, code_mismatch(store, run) or ""),
        CheckResult("it may trade", eligibility_message(store, active)),
        *([CheckResult("a newer run", newer)] if newer else []),
    ]


def check_pointer(store: Store) -> list[CheckResult]:
    """Check that the pointer file names the active policy; without one there is no file."""
    from nvtrader_pipelines.promotion.active_policy import find_pointer_difference, last_activation

    check = "pointer file"
    try:
        active = last_activation(store)
    except StorageError:  # reported with the active policy
        return []
    difference = find_pointer_difference(store, active)
    if difference:
        problem = f"{difference.sentence}; `nvtrader doctor --repair` writes it, as does the next `nvtrader policies`"
        return [CheckResult(check, difference.kind, problem)]
    return [CheckResult(check, str(store.home.active_policy_file))] if active else []


def check_accounts(store: Store) -> list[CheckResult]:
    """Check of every account whether the active policy may trade it, and the keys of brokers."""
    from nvtrader_pipelines.desk.account_access import account_names, read_account

    results = []
    for name in account_names(store.home):
        try:
            kind = read_account(store.home, name).kind
        except StorageError as error:
            results.append(CheckResult(f"account {name}", "cannot be read", str(error)))
            continue
        results += [check_tradable(store, name, kind), *([check_broker_keys(name)] if kind == "alpaca" else [])]
    return results


def check_tradable(store: Store, account: str, kind: str) -> CheckResult:
    """Check that the active policy was tested recently and can decide for an account."""
    from nvtrader_pipelines.desk.desk_market import require_ready
    from nvtrader_pipelines.promotion.active_policy import last_activation
    from nvtrader_pipelines.runs.lifecycle import now

    check = f"account {account}"
    try:
        active = last_activation(store)
        if active is None:
            return CheckResult(check, f"{kind}, not traded: no policy is active")
        require_ready(store, active, account, now())
    except (StorageError, ValueError) as error:
        return CheckResult(check, f"{kind}, may not be traded", " ".join(str(error).split()))
    if reason := store.switch.halt_reason():
        return CheckResult(check, f"{kind}, not traded: {reason}; {store.switch.remedy}")
    return CheckResult(check, f"{kind}, may be traded")


def check_broker_keys(account: str) -> CheckResult:
    """Check that the keys of an Alpaca account are set and its client is installed."""
    from nvtrader_pipelines.execution.brokers.account_spec import KEY_ID, SECRET_KEY

    missing = [name for name in (KEY_ID, SECRET_KEY) if not os.environ.get(name)]
    problems = [f"{' and '.join(missing)} not set: export them"] if missing else []
    problems += [] if installed_version("alpaca-py") else ["alpaca-py is not installed"]
    states = [f"{name} {'not set' if name in missing else 'set'}" for name in (KEY_ID, SECRET_KEY)]
    return CheckResult(f"keys of {account}", ", ".join(states), "; ".join(problems))


def check_language_model(home: Home) -> CheckResult:
    """Check that the endpoint of language models is valid and its client is installed; nothing is sent."""
    from nvtrader_pipelines.llm.endpoint import KEY_VARIABLE
    from nvtrader_pipelines.storage.llm_files import read_endpoint, read_key

    check = "language model"
    try:
        endpoint = read_endpoint(home)
        if endpoint is None:
            return CheckResult(check, "not configured")
        key = f"{KEY_VARIABLE} {'set' if read_key() else 'not set'}"
    except StorageError as error:
        return CheckResult(check, "cannot be used", " ".join(str(error).split()))
    installed = installed_version("openai")
    client = f"openai {installed}" if installed else "openai not installed"
    names = f"{endpoint.base_url}, model {endpoint.model}, vision model {endpoint.vision_model}"
    problem = "" if installed else "calls need the package openai: pip install 'nvtrader-pipelines[llm]'"
    return CheckResult(check, f"{names}, {key}, {client}", problem)


def check_audit(store: Store) -> CheckResult:
    """Check that every row of the audit is as it was appended."""
    try:
        state = store.audit.verify()
    except StorageError as error:
        return CheckResult("audit", "damaged", str(error))
    torn = f", {len(state.set_aside)} torn rows set aside" if state.set_aside else ""
    return CheckResult(
        "audit", f"{state.n_rows} rows, chain {short_id(state.chain)}{torn}" if state.n_rows else "no row yet"
    )


def check_decisions(store: Store) -> list[CheckResult]:
    """Check that every line of the decisions' file is as in the audit; without a line there is no check."""
    from nvtrader_pipelines.desk.decision_rows import find_refused_lines

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
