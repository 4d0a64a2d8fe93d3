"""Paths of a home: `data/` holds inputs and records, `warehouse/` what is built from them."""

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

VARIABLE = "NVTRADER_HOME"
URL_PARTS = re.compile(r"\?|%[0-9A-Fa-f]{2}")  # of paths that Dagster, MLflow and DuckDB read as URLs


class _Place:
    """Path relative to the root of a home."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, home: "Home", _owner: type["Home"]) -> Path:
        return home.root / self._path


@dataclass(frozen=True)
class Home:
    """Root folder and the paths below it."""

    root: Path
    landing = _Place("data/landing")  # files delivered by vendors, never rewritten
    experiments = _Place("data/experiments")  # experiment specs as YAML
    entrants = _Place("data/entrants")  # entrants of the scoreboard besides runs: YAML specs and the files they name
    contests = _Place("data/contests.yaml")  # contests by name, as YAML
    market_file = _Place("data/market.yaml")  # market sources to ingest, as YAML
    policies = _Place("data/rl/policies")  # trained policies by experiment and run
    accounts = _Place("data/accounts")  # accounts at brokers, as YAML
    compliance = _Place("data/compliance")  # the desk's limits, sectors, sales at a loss
    audit = _Place("data/audit")  # every event from proposal to fill, as append-only JSONL
    runtime = _Place("data/runtime")  # state of the trading loop: kill switch, books of the accounts
    promotion_file = _Place("data/promotion.yaml")  # settings of the promotion gate, as YAML
    notifications_file = _Place("data/notifications.yaml")  # channels of notifications, as YAML
    notification_record = _Place("data/runtime/notifications.json")  # notifications sent, so that none is repeated
    kill_switch = _Place("data/runtime/kill_switch")  # while it exists no order is placed; it holds the reason
    warehouse = _Place("warehouse")  # folder of everything that is built from `data/`
    iceberg = _Place("warehouse/iceberg")  # data and metadata files of the tables
    catalog = _Place("warehouse/catalog.db")  # SQLite catalog of the tables
    deliveries = _Place("warehouse/deliveries")  # copy of every delivered file, named by digest
    ledger = _Place("warehouse/ledger.db")  # SQLite ledger of versions and runs, unless $NVTRADER_LEDGER_URL is set
    pictures = _Place("warehouse/pictures")  # plots of the assets as PNG and SVG, in a folder per asset
    comparison_picture = _Place("warehouse/pictures/runs.png")  # of the runs compared last
    scorecards = _Place("warehouse/scorecards")  # in a folder per entrant, and the list of entrants last scored
    judgements = _Place("warehouse/judgements")  # backtests and stress tests by digest
    report = _Place("warehouse/report.html")  # scoreboard report, a single HTML file
    exports = _Place("exports")  # files that queries write
    mlflow = _Place("warehouse/mlflow")  # MLflow store
    mlflow_database = _Place("warehouse/mlflow/mlflow.db")
    dagster = _Place("warehouse/dagster")  # folder of the Dagster instance (DAGSTER_HOME)

    @property
    def without_link(self) -> Self:
        """Home by the path that people know, for sentences: behind the link of a linked home."""
        return type(self)(self.root.resolve())

    @property
    def duckdb_file(self) -> Path:
        """DuckDB file with the published views; of a linked home beside the link, which DuckDB resolves."""
        is_linked = self.root.is_symlink() and URL_PARTS.search(str(self.root.readlink()))
        return self.root.with_suffix(".duckdb") if is_linked else self.root / "warehouse/nvtrader.duckdb"

    @classmethod
    def find(cls) -> Self:
        """Find the home: $NVTRADER_HOME, else the checkout of this package, else the current folder."""
        return cls.find_fixed() or cls.at(Path.cwd())

    @classmethod
    def find_fixed(cls) -> Self | None:
        """Find the home that $NVTRADER_HOME or the checkout fixes, independent of the current folder."""
        named = os.environ.get(VARIABLE)
        if named:
            return cls.at(Path(named))
        checkout = cls.at(Path(__file__).parents[2])
        return checkout if checkout.experiments.is_dir() else None

    @classmethod
    def at(cls, folder: Path) -> Self:
        """Home in a folder, through a link in the user's cache if libraries read its path as a URL."""
        root = folder.expanduser().resolve()
        return cls(_link_to(root) if URL_PARTS.search(str(root)) else root)


def _link_to(root: Path) -> Path:
    """Link to a home by a path without special characters."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nvtrader" / "homes"
    link = cache / hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    if not link.is_symlink():
        cache.mkdir(parents=True, exist_ok=True)
        _remove_dangling(cache)
        with suppress(FileExistsError):  # by another process
            link.symlink_to(root)
    return link


def _remove_dangling(cache: Path) -> None:
    """Remove dangling links to homes that were moved or deleted, with their views."""
    for link in cache.iterdir():
        if link.is_symlink() and not link.exists():
            for path in (*cache.glob(f"{link.name}.*"), link):
                path.unlink(missing_ok=True)


def lock_path(home: Home, name: str) -> Path:
    """Path of the lock of a table, the catalog, or work that must not run concurrently."""
    return home.iceberg / ".locks" / f"{name}.lock"
