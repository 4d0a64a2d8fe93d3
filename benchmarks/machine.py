"""Conditions of a measurement: machine, interpreter and the libraries that decide speed."""

import os
import platform
import re
import tomllib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from nvtrader_pipelines.storage.ledger.processes import processor_name

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
LIBRARIES = (
    "numpy",
    "numba",
    "polars",
    "pyarrow",
    "duckdb",
    "pyiceberg",
    "highspy",
    "cvxpy",
    "torch",
    "stable-baselines3",
    "gymnasium",
    "skfolio",
)


@dataclass(frozen=True)
class Machine:
    """Machine and the libraries installed on it."""

    cpu: str
    cores: int  # available to this process
    memory_gib: float
    system: str
    python: str
    threads: str  # thread limits of the numerical libraries
    libraries: dict[str, str]  # name to version
    peers: dict[str, str]  # name to version or "not installed"

    @classmethod
    def this(cls) -> "Machine":
        """The machine of this process."""
        return cls(
            cpu=processor_name(),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            threads=" ".join(f"{name}={os.environ.get(name, 'unset')}" for name in THREADS),
            libraries={name: _version(name) for name in LIBRARIES},
            peers={name: _version(name) for name in _peers()},
        )

    def __str__(self) -> str:
        return "\n".join(
            (
                f"{self.cpu}, {self.cores} cores, {self.memory_gib:g} GiB, {self.system}, Python {self.python}",
                f"threads: {self.threads}",
                f"libraries: {format_versions(self.libraries)}",
                f"peers: {format_versions(self.peers)}",
            )
        )


def format_versions(versions: dict[str, str]) -> str:
    """Format names with their versions on one line."""
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _peers() -> list[str]:
    """Packages of the extra `bench`."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return sorted(re.split(r"[^\w.-]", each)[0] for each in project["optional-dependencies"]["bench"])


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
