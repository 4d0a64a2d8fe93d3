"""Manual run: the experiment of one training of PPO with its defaults."""

import hashlib
import json
from collections.abc import Sequence

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.runs.registration import plan_problem
from nvtrader_pipelines.storage.documents import validate_document
from nvtrader_pipelines.storage.specs import store_experiment
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import MARKET_PANEL


def store_manual_experiment(
    store: Store, source: str = "sample", symbols: Sequence[str] | None = None, timesteps: int | None = None
) -> str:
    """Write the experiment of a manual run; return its name, which follows from the arguments.

    Raises:
        StorageError: if an argument is not valid.
        ValueError: if the market has no such symbols, or is too short.
    """
    market = {"source": source} | ({} if symbols is None else {"symbols": list(symbols)})
    agent = {"kind": "ppo"} | ({} if timesteps is None else {"total_timesteps": timesteps})
    content = {"market": market, "agent": agent}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    named = {"name": f"train-{short_id(digest)}", "description": "Manual run.", **content}
    spec = validate_document(named, ExperimentSpec, "the options are not valid")
    sources = store.tables.read(MARKET_PANEL, columns=["source"])["source"]
    problem = plan_problem(store, spec) if spec.market.source in set(sources) else None  # else it is ingested first
    if problem:
        raise ValueError(problem)
    return store_experiment(store.home, spec).name
