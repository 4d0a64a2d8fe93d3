"""What is installed, where things lie, what is missing."""

import platform
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import psutil

from nvtrader_pipelines.storage.home import Home

PACKAGES = ("nvtrader-pipelines", "dagster", "duckdb", "pyiceberg", "polars", "stable-baselines3", "torch", "mlflow")
EXTRAS = {"yfinance": "the yahoo source needs it: pip install -c constraints.txt -e '.[yahoo]'"}
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


def diagnose(home: Home) -> list[Finding]:
    """Versions, paths, disk and memory, and what to do about what is missing."""
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
        Finding("views", str(home.duckdb_file) if home.duckdb_file.exists() else "none yet: run `nvtrader run`"),
        Finding("free disk", f"{free:.1f} GiB", "" if free >= NEEDED_GIB else f"less than {NEEDED_GIB} GiB: make room"),
        Finding("free memory", f"{memory:.1f} GiB", "" if memory >= NEEDED_GIB else "training needs about 2 GiB"),
    ]
    return findings
