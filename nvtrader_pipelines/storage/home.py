"""Paths of a home: `data/` holds inputs and records, `warehouse/` what is built from them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

VARIABLE = "NVTRADER_HOME"


@dataclass(frozen=True)
class Home:
    """Root folder and the paths below it."""

    root: Path

    @classmethod
    def find(cls) -> Self:
        """Find the home: $NVTRADER_HOME, else the checkout of this package, else the current folder."""
        named = os.environ.get(VARIABLE)
        if named:
            return cls(Path(named).expanduser().resolve())
        checkout = Path(__file__).resolve().parents[2]
        return cls(checkout if (checkout / "data" / "experiments").is_dir() else Path.cwd())

    @property
    def landing(self) -> Path:
        """Files delivered by vendors, never rewritten."""
        return self.root / "data" / "landing"

    @property
    def experiments(self) -> Path:
        """Experiment specs as YAML."""
        return self.root / "data" / "experiments"

    @property
    def entrants(self) -> Path:
        """Entrants of the scoreboard besides runs: YAML specs and the files they name."""
        return self.root / "data" / "entrants"

    @property
    def market_file(self) -> Path:
        """Market sources to ingest, as YAML."""
        return self.root / "data" / "market.yaml"

    @property
    def policies(self) -> Path:
        """Trained policies by experiment and run."""
        return self.root / "data" / "rl" / "policies"

    @property
    def accounts(self) -> Path:
        """Accounts at brokers, as YAML."""
        return self.root / "data" / "accounts"

    @property
    def compliance(self) -> Path:
        """Compliance files: the desk's limits, sectors, sales at a loss."""
        return self.root / "data" / "compliance"

    @property
    def audit(self) -> Path:
        """Audit: every event from proposal to fill, as append-only JSONL."""
        return self.root / "data" / "audit"

    @property
    def runtime(self) -> Path:
        """State of the trading loop: active policy, kill switch, books of the accounts."""
        return self.root / "data" / "runtime"

    @property
    def promotion_file(self) -> Path:
        """Settings of the promotion gate, as YAML."""
        return self.root / "data" / "promotion.yaml"

    @property
    def active_policy(self) -> Path:
        """Pointer to the active policy, as JSON."""
        return self.runtime / "active_policy.json"

    @property
    def kill_switch(self) -> Path:
        """Kill switch: while this file exists no order is placed. It holds the reason."""
        return self.runtime / "kill_switch"

    @property
    def warehouse(self) -> Path:
        """Folder of everything that is built from `data/`."""
        return self.root / "warehouse"

    @property
    def iceberg(self) -> Path:
        """Data and metadata files of the tables."""
        return self.warehouse / "iceberg"

    @property
    def catalog(self) -> Path:
        """SQLite catalog of the tables."""
        return self.warehouse / "catalog.db"

    @property
    def duckdb_file(self) -> Path:
        """DuckDB file with the published views."""
        return self.warehouse / "nvtrader.duckdb"

    @property
    def deliveries(self) -> Path:
        """Copy of every delivered file, named by digest."""
        return self.warehouse / "deliveries"

    @property
    def ledger(self) -> Path:
        """SQLite ledger of versions and runs, unless $NVTRADER_LEDGER_URL names another database."""
        return self.warehouse / "ledger.db"

    @property
    def pictures(self) -> Path:
        """Plots of the assets as PNG files, in a folder per asset."""
        return self.warehouse / "pictures"

    @property
    def scorecards(self) -> Path:
        """Scorecards in a folder per entrant, and the list of entrants last scored."""
        return self.warehouse / "scorecards"

    @property
    def report(self) -> Path:
        """Scoreboard report, a single HTML file."""
        return self.warehouse / "report.html"

    @property
    def mlflow(self) -> Path:
        """MLflow store."""
        return self.warehouse / "mlflow"

    @property
    def dagster(self) -> Path:
        """Folder of the Dagster instance (DAGSTER_HOME)."""
        return self.warehouse / "dagster"


def lock_path(home: Home, name: str) -> Path:
    """Path of the lock of a table, the catalog, or work that must not run concurrently."""
    return home.iceberg / ".locks" / f"{name}.lock"
