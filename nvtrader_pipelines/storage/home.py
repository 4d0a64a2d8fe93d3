"""Where everything lies: one root folder with `data/` (given) and `warehouse/` (built)."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

VARIABLE = "NVTRADER_HOME"


@dataclass(frozen=True)
class Home:
    """The paths of one installation."""

    root: Path

    @classmethod
    def find(cls) -> Self:
        """$NVTRADER_HOME, else the checkout that holds this package, else the current folder."""
        named = os.environ.get(VARIABLE)
        if named:
            return cls(Path(named).expanduser().resolve())
        checkout = Path(__file__).resolve().parents[2]
        return cls(checkout if (checkout / "data" / "experiments").is_dir() else Path.cwd())

    @property
    def landing(self) -> Path:
        """Vendor files, never rewritten."""
        return self.root / "data" / "landing"

    @property
    def experiments(self) -> Path:
        """Experiment specs as YAML."""
        return self.root / "data" / "experiments"

    @property
    def entrants(self) -> Path:
        """What competes beside the runs, as YAML and the files that it names."""
        return self.root / "data" / "entrants"

    @property
    def market_file(self) -> Path:
        """Which sources are ingested, as YAML."""
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
        """What compliance holds plans against: the desk's limits, sectors, sales at a loss."""
        return self.root / "data" / "compliance"

    @property
    def audit(self) -> Path:
        """Every event from a proposal to a fill, as append-only JSONL."""
        return self.root / "data" / "audit"

    @property
    def runtime(self) -> Path:
        """What the loop goes by: the active policy, the kill switch, paper accounts."""
        return self.root / "data" / "runtime"

    @property
    def promotion_file(self) -> Path:
        """What a policy must show before it trades, as YAML."""
        return self.root / "data" / "promotion.yaml"

    @property
    def active_policy(self) -> Path:
        """Which policy trades, as JSON."""
        return self.runtime / "active_policy.json"

    @property
    def kill_switch(self) -> Path:
        """While this file is there no order is placed; it says why."""
        return self.runtime / "kill_switch"

    @property
    def warehouse(self) -> Path:
        """Everything that is built."""
        return self.root / "warehouse"

    @property
    def iceberg(self) -> Path:
        """Data and metadata files of the tables."""
        return self.warehouse / "iceberg"

    @property
    def catalog(self) -> Path:
        """The SQLite catalog of the tables."""
        return self.warehouse / "catalog.db"

    @property
    def duckdb_file(self) -> Path:
        """The published views."""
        return self.warehouse / "nvtrader.duckdb"

    @property
    def deliveries(self) -> Path:
        """A copy of every delivered file, by digest."""
        return self.warehouse / "deliveries"

    @property
    def ledger(self) -> Path:
        """The SQLite ledger of versions and runs, where no other database is named."""
        return self.warehouse / "ledger.db"

    @property
    def pictures(self) -> Path:
        """Every plot of an asset as a PNG file, below the asset's name."""
        return self.warehouse / "pictures"

    @property
    def scorecards(self) -> Path:
        """A folder per entrant with its scorecard, and who took part in the last judgement."""
        return self.warehouse / "scorecards"

    @property
    def report(self) -> Path:
        """The report on everything judged, one HTML file."""
        return self.warehouse / "report.html"

    @property
    def mlflow(self) -> Path:
        """The MLflow store."""
        return self.warehouse / "mlflow"

    @property
    def dagster(self) -> Path:
        """DAGSTER_HOME."""
        return self.warehouse / "dagster"


def lock_path(home: Home, name: str) -> Path:
    """The lock file of a table, of the catalog, or of a piece of work that must not run twice at once."""
    return home.iceberg / ".locks" / f"{name}.lock"
