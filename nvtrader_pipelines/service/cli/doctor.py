"""What is installed, where things lie, what is missing, and whether the account may trade."""

import os
import platform
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import psutil

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store

PACKAGES = ("nvtrader-pipelines", "dagster", "duckdb", "pyiceberg", "polars", "stable-baselines3", "torch", "mlflow")
EXTRAS = {
    "yfinance": "the yahoo source needs it: pip install -c constraints.txt -e '.[yahoo]'",
    "alpaca-py": "accounts at Alpaca need it: pip install -c constraints.txt -e '.[alpaca]'",
}
NEEDED_GIB = 2.0  # free disk for a warehouse of the sample market


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    what: str
    found: str
    problem: str = ""


def installed(package: str) -> str:
    """The version, or nothing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def diagnose(store: Store) -> list[Finding]:
    """Versions, paths, disk and memory, and what to do about what is missing."""
    home = store.home
    free = shutil.disk_usage(home.root).free / 2**30
    memory = psutil.virtual_memory().available / 2**30
    missing = "not installed: run `make run` or pip install -c constraints.txt -e ."
    findings = [Finding("python", platform.python_version())]
    findings += [Finding(name, installed(name), "" if installed(name) else missing) for name in PACKAGES]
    findings += [
        Finding(f"{name} (extra)", installed(name) or f"not installed; {hint}") for name, hint in EXTRAS.items()
    ]
    findings += [
        Finding("home", str(home.root)),
        Finding("experiments", str(home.experiments), "" if home.experiments.is_dir() else "missing: create it"),
        Finding("landing", str(home.landing), "" if home.landing.is_dir() else "missing: create it"),
        Finding("warehouse", str(home.warehouse) if home.warehouse.is_dir() else f"{home.warehouse} (not built yet)"),
        Finding(
            "views", str(home.duckdb_file) if home.duckdb_file.exists() else "none yet: run `nvtrader materialize`"
        ),
        Finding("free disk", f"{free:.1f} GiB", "" if free >= NEEDED_GIB else f"less than {NEEDED_GIB} GiB: make room"),
        Finding("free memory", f"{memory:.1f} GiB", "" if memory >= NEEDED_GIB else "training needs about 2 GiB"),
    ]
    return [*findings, kill_switch(store), *active_policy(store), *accounts(store), audit(store)]


def kill_switch(store: Store) -> Finding:
    """Whether trading is stopped, and why; that it is stopped is no problem, for somebody wanted it."""
    from nvtrader_pipelines.storage.kill_switch import FileKillSwitch

    stopped = FileKillSwitch(store.home).halt_reason()
    return Finding("kill switch", f"engaged: {stopped}; `nvtrader resume` ends it" if stopped else "not engaged")


def active_policy(store: Store) -> list[Finding]:
    """Which policy trades, that its files are those that were activated, until when it may, and of which code it is."""
    from nvtrader_pipelines.promotion.active_policy import read_active, read_active_run
    from nvtrader_pipelines.promotion.recency import eligibility_message
    from nvtrader_pipelines.promotion.rounds import newer_run_message
    from nvtrader_pipelines.promotion.verification import code_mismatch

    what = "active policy"
    try:
        active = read_active(store)
        if active is None:
            return [Finding(what, "none yet: `nvtrader policies activate NAME`")]
        broken = store.policies.find_tampered_files(read_active_run(store, active))
        newer = newer_run_message(store, active)
    except StorageError as error:
        return [Finding(what, "cannot be used", str(error))]
    told = f"{active.policy} of run {active.run_id}, activated by {active.by} on {active.activated_at:%Y-%m-%d}"
    changed = ", ".join(broken["file"])
    return [
        Finding(what, told, f"not the files that were activated: {changed}; restore them" if changed else ""),
        Finding("its code", active.code_version, code_mismatch(active.code_version) or ""),
        Finding("it may trade", eligibility_message(store, active)),
        *([Finding("a newer run", newer)] if newer else []),
    ]


def accounts(store: Store) -> list[Finding]:
    """Of every account, whether the active policy may trade it now; of those at a broker also what they need."""
    from nvtrader_pipelines.desk.account_access import DEFAULT_ACCOUNT, read_account

    found = []
    for name in sorted({DEFAULT_ACCOUNT, *(path.stem for path in store.home.accounts.glob("*.yaml"))}):
        try:
            kind = read_account(store.home, name).kind
        except StorageError as error:
            found.append(Finding(f"account {name}", "cannot be read", str(error)))
            continue
        found += [may_trade(store, name, kind), *([keys(name)] if kind == "alpaca" else [])]
    return found


def may_trade(store: Store, account: str, kind: str) -> Finding:
    """Whether the active policy was tested, recently enough, and can decide for an account."""
    from nvtrader_pipelines.desk.readiness import require_ready
    from nvtrader_pipelines.promotion.active_policy import read_active
    from nvtrader_pipelines.runs.lifecycle import now

    what = f"account {account}"
    try:
        active = read_active(store)
        if active is None:
            return Finding(what, f"{kind}, nothing trades it: no policy is active")
        require_ready(store, active, account, now())
    except (StorageError, ValueError) as error:
        return Finding(what, f"{kind}, may not be traded", " ".join(str(error).split()))
    return Finding(what, f"{kind}, may be traded")


def keys(account: str) -> Finding:
    """Whether the keys of an account at Alpaca are in the environment, and what speaks to it is installed."""
    from nvtrader_pipelines.execution.brokers.account_spec import KEY_ID, SECRET_KEY

    missing = [name for name in (KEY_ID, SECRET_KEY) if not os.environ.get(name)]
    problems = [f"{' and '.join(missing)} not set: export them"] if missing else []
    problems += [] if installed("alpaca-py") else ["alpaca-py is not installed"]
    states = [f"{name} {'not set' if name in missing else 'set'}" for name in (KEY_ID, SECRET_KEY)]
    return Finding(f"keys of {account}", ", ".join(states), "; ".join(problems))


def audit(store: Store) -> Finding:
    """Whether every row of the audit is what was appended."""
    try:
        state = store.audit.verify()
    except StorageError as error:
        return Finding("audit", "damaged", str(error))
    torn = f", {len(state.set_aside)} torn rows set aside" if state.set_aside else ""
    return Finding(
        "audit", f"{state.n_rows} rows, chain {short_id(state.chain)}{torn}" if state.n_rows else "no row yet"
    )
