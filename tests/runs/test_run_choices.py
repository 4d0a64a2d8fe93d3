import json

import polars as pl

from nvtrader_pipelines.components.component import whole_document
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.agents import A2cAgent, EnsembleAgent, PpoAgent
from nvtrader_pipelines.runs.run_document import read_choices
from nvtrader_pipelines.storage.spec_versions import agents_by_seed

SPEC = ExperimentSpec(name="a", agent=EnsembleAgent(members=(PpoAgent(), A2cAgent())), seeds=(7, 3, 5, 9))


def test_agents_by_seed_are_those_that_train():
    assert agents_by_seed(whole_document(SPEC)) == {seed: SPEC.agent_of(seed).kind for seed in SPEC.seeds}


def test_choices_of_a_resumed_run_are_the_last_of_each_fold():
    rows = [(1, 7, {"sharpe/seed-7": 0.5}), (0, 3, {"sharpe/seed-3": 1.0}), (1, 9, {"sharpe/seed-9": 0.7}), (0, 0, {})]
    events = pl.DataFrame(
        [("evaluate.step", fold, seed, json.dumps(metrics)) for fold, seed, metrics in rows],
        schema=["stage", "fold", "seed", "metrics"],
        orient="row",
    )
    choices = read_choices(events, agents_by_seed(whole_document(SPEC)))
    assert [(choice.fold, choice.seed, choice.agent) for choice in choices] == [(0, 3, "a2c"), (1, 9, "a2c")]
    assert [choice.sharpe for choice in choices] == [{3: 1.0}, {9: 0.7}]
