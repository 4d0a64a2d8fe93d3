import polars as pl
import pytest

from nvtrader_pipelines.policies.agents import DpoAgent
from nvtrader_pipelines.promotion.eligibility import tuning_message
from nvtrader_pipelines.storage.tables import DPO_CHECKS
from tests.runs.untrained import EXPERIMENT

pytestmark = pytest.mark.slow


def test_tuned_run_may_pass_only_if_it_orders_held_out_pairs(gate_store, runs):
    store, rule = gate_store, runs["steady"]
    assert tuning_message(store, rule) is None
    agent = {"kind": "dpo", "start": "0" * 16, "pairs": "0" * 64}
    tuned = EXPERIMENT.model_copy(update={"name": "small-dpo", "agent": DpoAgent.model_validate(agent)})
    store.ledger.register(tuned)
    run = rule.model_copy(update={"partition_key": tuned.partition_key, "experiment": tuned.name, "run_id": "a" * 16})
    assert "nvtrader preferences check small-dpo" in tuning_message(store, run)
    for passed, message in ((False, "its interval contains 0.5"), (True, None)):
        row = {"spec_hash": "", "run_id": run.run_id, "passed": passed, "sentence": "its interval contains 0.5"}
        store.tables.replace(DPO_CHECKS, pl.DataFrame([row], schema=DPO_CHECKS.schema), {})
        assert tuning_message(store, run) == message
