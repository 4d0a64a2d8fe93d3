"""From a partition key to a run: the registered spec, the panel at its pinned snapshots, what is already done."""

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime

from nvtrader_pipelines.experiments.runtime import CODE_VERSION, RunPlan, train
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.landing import fingerprint
from nvtrader_pipelines.storage.medallion import pinned_snapshots, read_panel
from nvtrader_pipelines.storage.policy_library import PolicyLibrary, SealedRun
from nvtrader_pipelines.storage.specs import SpecStore, read_market
from nvtrader_pipelines.storage.tables import MARKET_PANEL, RUNS
from nvtrader_pipelines.storage.warehouse import Warehouse


def read_plan(lake: Warehouse, partition_key: str, snapshot_ids: dict[str, int] | None = None) -> RunPlan:
    """The run of a registered experiment on the pinned market, or on the market at given snapshots.

    Raises:
        StorageError: if the experiment is not registered, or its market has no panel.
        ValueError: if the bars do not make a panel, or no fold fits.
    """
    spec = SpecStore(lake.home).read(partition_key)
    panel = read_panel(lake, spec.market.source, spec.market.symbols, spec.market.max_gap, snapshot_ids)
    return RunPlan(spec, panel, panel_digest(panel), tuple(spec.splitter.split(panel.sessions)))


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


def train_into(library: PolicyLibrary, plan: RunPlan, report: Callable[[str], None]) -> SealedRun:
    """Train what the library lacks of a run; every policy is kept as soon as it is ready, the manifest last."""
    key = plan.spec.partition_key
    with closing(train(plan, library.done(key, plan.run_id), report)) as policies:  # a failed save ends the workers
        for policy in policies:
            library.save(key, plan.run_id, policy)
    return library.seal(plan)


def is_complete(lake: Warehouse, partition_key: str) -> bool:
    """Whether the experiment has a judged run on the pinned market by this code."""
    source = SpecStore(lake.home).read(partition_key).market.source
    runs = lake.read(RUNS, {"partition_key": [partition_key]})
    pinned = json.dumps(pinned_snapshots(lake, source), sort_keys=True)
    if len(runs.filter((runs["snapshot_ids"] == pinned) & (runs["code_version"] == CODE_VERSION))):
        return True
    return read_plan(lake, partition_key).run_id in runs["run_id"]  # other snapshots may hold the same rows


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


def remember_market(home: Home, state: str) -> None:
    """Keep the state the market was built from; take it before the build begins."""
    write_atomically(home.warehouse / "market.json", json.dumps({"state": state}).encode())
