"""From a partition key to a run: the registered spec, the panel at its pinned snapshots, what is already done."""

import hashlib
import json
from datetime import UTC, date, datetime

import polars as pl

from nvtrader_pipelines.experiments.plan import CODE_VERSION, RunPlan
from nvtrader_pipelines.experiments.replay import paper_plan, replay_plan
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.landing import fingerprint
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.medallion import pinned_snapshots, read_panel
from nvtrader_pipelines.storage.policy_library import SealedRun
from nvtrader_pipelines.storage.runs import walk_forward_runs
from nvtrader_pipelines.storage.specs import read_market
from nvtrader_pipelines.storage.tables import MARKET_PANEL, REGIME_EVALUATION, STRESS, Table
from nvtrader_pipelines.storage.warehouse import Warehouse

AFTER_THE_VERDICT = (REGIME_EVALUATION, STRESS)  # of a run: they may be missing where its verdict is there


def read_plan(lake: Warehouse, partition_key: str, snapshot_ids: dict[str, int] | None = None) -> RunPlan:
    """The run of a registered experiment on the pinned market, or on the market at given snapshots.

    Raises:
        StorageError: if the experiment is not registered, or its market has no panel.
        ValueError: if the bars do not make a panel, or no fold fits.
    """
    spec = Ledger.open(lake.home).read(partition_key)
    panel = read_panel(lake, spec.market.source, spec.market.symbols, spec.market.max_gap, snapshot_ids)
    return RunPlan.of(spec, panel)


def reopen_plan(lake: Warehouse, run: SealedRun) -> RunPlan:
    """The plan of a sealed run, on the snapshots it was trained on.

    Raises:
        StorageError: if the panel read now is not the one it was trained on.
    """
    plan = read_plan(lake, run.partition_key, run.snapshot_ids)
    if plan.run_id != run.run_id:
        raise StorageError(
            f"the policies of {run.partition_key} were trained as run {run.run_id}, but its spec, market snapshots and "
            f"code now make run {plan.run_id}; materialise trained_policy again"
        )
    return plan


def read_replay(
    lake: Warehouse,
    parent: SealedRun,
    window: tuple[date, date] | None = None,
    snapshot_ids: dict[str, int] | None = None,
) -> RunPlan:
    """The replay of a sealed run over a window, on the pinned market or on the market at given snapshots.

    Raises:
        StorageError: if the experiment is not registered, or the market has no panel or not these snapshots any more.
        ValueError: if the window holds sessions its policies were trained on, or none.
    """
    spec = Ledger.open(lake.home).read(parent.partition_key)
    panel = read_panel(lake, spec.market.source, spec.market.symbols, spec.market.max_gap, snapshot_ids)
    plan = replay_plan(spec, panel, parent.as_parent, window)
    if snapshot_ids == parent.snapshot_ids and plan.panel_digest != parent.panel_digest:
        raise StorageError(
            f"run {parent.run_id} was trained on the market {parent.panel_digest[:8]}, but its snapshots give "
            f"{plan.panel_digest[:8]} by this version's code; replay it with the version {parent.code_version}"
        )
    return plan


def read_paper(lake: Warehouse, parent: SealedRun) -> RunPlan:
    """The paper account of a sealed run on the market as it is now.

    Raises:
        StorageError: if the experiment is not registered, or the market has no panel.
        ValueError: if the market ends before the run's own tests.
    """
    spec = Ledger.open(lake.home).read(parent.partition_key)
    panel = read_panel(lake, spec.market.source, spec.market.symbols, spec.market.max_gap)
    return paper_plan(spec, panel, parent.as_parent)


def completed_run(lake: Warehouse, partition_key: str) -> str | None:
    """The experiment's judged run on the pinned market by this code, where there is one."""
    source = Ledger.open(lake.home).read(partition_key).market.source
    runs = walk_forward_runs(lake).filter(pl.col("partition_key") == partition_key)
    pinned = json.dumps(pinned_snapshots(lake, source), sort_keys=True)
    known = runs.filter((runs["snapshot_ids"] == pinned) & (runs["code_version"] == CODE_VERSION))["run_id"].to_list()
    if known:
        return known[0]
    planned = read_plan(lake, partition_key).run_id
    return planned if planned in runs["run_id"] else None  # other snapshots may hold the same rows


def unwritten(lake: Warehouse, run_id: str) -> list[Table]:
    """The tables that lack the rows of a judged run: it was interrupted after its verdict."""
    return [table for table in AFTER_THE_VERDICT if lake.read(table, {"run_id": [run_id]}, ["run_id"]).is_empty()]


def has_panel(lake: Warehouse) -> bool:
    """Whether any source has a panel."""
    return not lake.read(MARKET_PANEL, columns=["source"]).is_empty()


def market_state(home: Home) -> str:
    """A digest of what the market is made of: landed files, sources, code; and the day where a source is live."""
    market = read_market(home)
    live = any(source.kind == "yahoo" for source in market.sources)
    day = datetime.now(UTC).date().isoformat() if live else ""
    content = "|".join((fingerprint(home), market.model_dump_json(), CODE_VERSION, day))
    return hashlib.sha256(content.encode()).hexdigest()


def market_is_current(lake: Warehouse) -> bool:
    """Whether the market was last built from what is there now."""
    marker = lake.home.warehouse / "market.json"
    return (
        marker.exists() and json.loads(marker.read_bytes()).get("state") == market_state(lake.home) and has_panel(lake)
    )


def contest_state(lake: Warehouse) -> str:
    """A digest of what competes: the completed runs as last tested, the entrants' files, the market, the code."""
    runs = walk_forward_runs(lake, ["run_id", "finished_at"]).sort("run_id")
    panels = lake.read(MARKET_PANEL, columns=["source", "digest"]).sort("source")
    state = hashlib.sha256(json.dumps([runs.rows(), panels.rows(), CODE_VERSION], default=str).encode())
    for path in sorted(path for path in lake.home.entrants.rglob("*") if path.is_file()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        state.update(f"{path.relative_to(lake.home.entrants)}|{digest}\n".encode())
    return state.hexdigest()[:32]


def question_state(home: Home, contest: str) -> str:
    """A digest of what the promotion gate is asked: what competes, and the gate's own file."""
    gate = home.promotion_file.read_bytes() if home.promotion_file.exists() else b""
    return hashlib.sha256(contest.encode() + b"|" + gate).hexdigest()[:32]


def remember_market(home: Home, state: str) -> None:
    """Keep the state the market was built from; take it before the build begins."""
    write_atomically(home.warehouse / "market.json", json.dumps({"state": state}).encode())
