"""Home: inputs and records in `data/`, what is built from them in `warehouse/`."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import require_new_folder, write_atomically

VARIABLE = "NVTRADER_HOME"
URL_PARTS = re.compile(r"\?|%[0-9A-Fa-f]{2}")  # of paths that Dagster, MLflow and DuckDB read as URLs
PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED_FILES = (  # below `data/`; pyproject.toml puts the same files into the wheel
    "market.yaml",
    "experiments/cufolio.yaml",
    "experiments/pathwise.yaml",
    "experiments/ppo-cvar.yaml",
    "experiments/ppo-growth.yaml",
    "experiments/ppo-residual.yaml",
    "accounts/README.md",
    "bots/README.md",
    "compliance/README.md",
    "compliance/sectors.csv",
    "worlds/make-market.yaml",
    "worlds/one-asset.yaml",
    "worlds/order-book.yaml",
    "worlds/sell-order.yaml",
)


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
    settings_file = _Place("nvtrader.toml")  # settings of the home, such as its database
    landing = _Place("data/landing")  # files delivered by vendors, never rewritten
    experiments = _Place("data/experiments")  # experiment specs as YAML
    entrants = _Place("data/entrants")  # entrants of the scoreboard besides runs: YAML specs and the files they name
    alphas = _Place("data/alphas")  # formulas that may predict returns, as YAML
    contests = _Place("data/contests.yaml")  # contests by name, as YAML
    market_file = _Place("data/market.yaml")  # market sources to ingest, as YAML
    policies = _Place("data/rl/policies")  # trained policies by experiment and run
    preference_pairs = _Place("data/rl/preference_pairs")  # pairs that policies were tuned to, by digest
    research_sessions = _Place("data/autoresearch/sessions")  # a folder per search session, with its journal
    research_policies = _Place("data/autoresearch/policies")  # policies that searches hand on, in a folder per session
    spans_file = _Place("data/traces/spans.jsonl")  # OpenTelemetry spans of searches, as JSON lines
    accounts = _Place("data/accounts")  # accounts at brokers, as YAML
    bots = _Place("data/bots")  # bots that trade accounts on schedules, as YAML
    worlds = _Place("data/worlds")  # experiments in worlds other than portfolios, as YAML
    workflows = _Place("data/workflows")  # chains of jobs, as YAML
    compliance = _Place("data/compliance")  # the desk's limits, sectors, sales at a loss
    audit = _Place("data/audit")  # every event from proposal to fill, as append-only JSONL
    runtime = _Place("data/runtime")  # state of the trading loop: kill switch, books of the accounts
    promotion_file = _Place("data/promotion.yaml")  # settings of the promotion gate, as YAML
    notifications_file = _Place("data/notifications.yaml")  # channels of notifications, as YAML
    llm_file = _Place("data/llm.yaml")  # endpoint of language models, as YAML
    llm_answers = _Place("data/llm/answers")  # their answers, by digest of the request
    notification_record = _Place("data/runtime/notifications.json")  # notifications sent, so that none is repeated
    active_policy_file = _Place("data/runtime/active_policy.json")  # pointer file: active policy for other programs
    kill_switch = _Place("data/runtime/kill_switch")  # while it exists no order is placed; it holds the reason
    trading_states = _Place("data/runtime/trading_states")  # a file per account that is stopped or reduced
    warehouse = _Place("warehouse")  # folder of everything that is built from `data/`
    iceberg = _Place("warehouse/iceberg")  # data and metadata files of the tables
    catalog = _Place("warehouse/catalog.db")  # SQLite catalog of the tables, unless in Postgres
    deliveries = _Place("warehouse/deliveries")  # copy of every delivered file, named by digest
    ledger = _Place("warehouse/ledger.db")  # SQLite ledger of versions and runs, unless elsewhere
    pictures = _Place("warehouse/pictures")  # plots of the assets as PNG and SVG, in a folder per asset
    comparison_picture = _Place("warehouse/pictures/runs.png")  # of the runs compared last
    training_curves = _Place("warehouse/training_curves")  # a file per run that grows while it trains
    scorecards = _Place("warehouse/scorecards")  # in a folder per entrant, and the list of entrants last scored
    compiled = _Place("warehouse/compiled")  # code that PyTorch compiled for trainings
    judgements = _Place("warehouse/judgements")  # backtests and stress tests by digest
    report = _Place("warehouse/report.html")  # verdict, scoreboard and tear sheets, a single HTML file
    exports = _Place("exports")  # files that queries and exports write
    mlflow = _Place("warehouse/mlflow")  # MLflow store
    mlflow_database = _Place("warehouse/mlflow/mlflow.db")
    duckdb_file = _Place("warehouse/nvtrader.duckdb")  # published views
    dagster = _Place("warehouse/dagster")  # folder of the Dagster instance (DAGSTER_HOME)

    @classmethod
    def find(cls) -> Self:
        """Find the home: $NVTRADER_HOME, else the current folder if it is one, else the checkout of this package."""
        here = Path.cwd()
        if not os.environ.get(VARIABLE) and cls(here).experiments.is_dir():
            return cls.at(here)
        return cls.find_fixed() or cls.at(here)

    @classmethod
    def find_fixed(cls) -> Self | None:
        """Find the home that $NVTRADER_HOME or the checkout fixes, independent of the current folder."""
        named = os.environ.get(VARIABLE)
        if named:
            return cls.at(Path(named))
        checkout = Path(__file__).parents[2]
        return cls.at(checkout) if cls(checkout).experiments.is_dir() else None

    @classmethod
    def at(cls, folder: Path) -> Self:
        """Home in a folder.

        Raises:
            StorageError: if Dagster, MLflow or DuckDB would read its path as a URL.
        """
        root = folder.expanduser().resolve()
        if URL_PARTS.search(str(root)):
            raise StorageError(
                f"the path {root} must be without ? and %XX, which mean something in a URL; rename a folder"
            )
        return cls(root)


def lock_path(home: Home, name: str) -> Path:
    """Path of the lock of a table, the catalog, or work that must not run concurrently."""
    return home.iceberg / ".locks" / f"{name}.lock"


def create_home(root: Path) -> Home:
    """Create a home with the shipped market file, experiments and compliance files.

    Raises:
        StorageError: if the folder is not empty, or is or lies below a file, or its path reads as a URL.
    """
    home = Home.at(root)
    require_new_folder(home.root)
    packaged = PACKAGE / "shipped"  # in a wheel only; a checkout has the files in its own `data/`
    source = packaged if packaged.is_dir() else PACKAGE.parent / "data"
    for name in SHIPPED_FILES:
        write_atomically(home.root / "data" / name, (source / name).read_bytes())
    for folder in (home.landing, home.policies, home.research_policies, home.audit, home.warehouse):
        folder.mkdir(parents=True)
    return home
