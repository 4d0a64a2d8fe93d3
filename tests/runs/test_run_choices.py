import json

import polars as pl

from nvtrader_pipelines.components.component import whole_document
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.agents import A2cAgent, EnsembleAgent, PpoAgent
from nvtrader_pipelines.runs.run_choices import describe_choices, read_choice_messages, read_choices, read_seed_weights
from nvtrader_pipelines.storage.spec_versions import agents_by_seed

SPEC = ExperimentSpec(name="a", agent=EnsembleAgent(members=(PpoAgent(), A2cAgent())), seeds=(7, 3, 5, 9))
AGENTS = agents_by_seed(whole_document(SPEC))


def events(rows):
    """Events of validations, as the ledger has them."""
    return pl.DataFrame(
        [("evaluate.step", *row[:2], json.dumps(row[2]), f"message {i}") for i, row in enumerate(rows)],
        schema={"stage": pl.String, "fold": pl.Int64, "seed": pl.Int64, "metrics": pl.String, "message": pl.String},
        orient="row",
    )


def test_agents_by_seed_are_those_that_train():
    assert {seed: SPEC.agent_of(seed).kind for seed in SPEC.seeds} == AGENTS


def test_choices_of_a_resumed_run_are_the_last_of_each_fold():
    rows = [(1, 7, {"sharpe/seed-7": 0.5}), (0, 3, {"sharpe/seed-3": 1.0}), (1, 9, {"sharpe/seed-9": 0.7}), (0, 0, {})]
    choices = read_choices(events(rows), AGENTS)
    assert read_seed_weights(events(rows), AGENTS) == ()
    assert [(choice.fold, choice.seed, choice.agent) for choice in choices] == [(0, 3, "a2c"), (1, 9, "a2c")]
    assert [choice.sharpe for choice in choices] == [{3: 1.0}, {9: 0.7}]
    assert read_choice_messages(events(rows)) == ("message 1", "message 2")
    assert describe_choices(choices, ()) == "chosen by validation: seed 3 (a2c) in 1 fold, seed 9 (a2c) in 1 fold"


def test_seed_weights_are_read_with_agents_and_sharpe_ratios():
    metrics = {"sharpe/seed-7": 0.5, "sharpe/seed-3": 0.1, "weight/seed-7": 0.6, "weight/seed-3": 0.4}
    rows = [(0, None, {**metrics, "weight/seed-7": 0.9}), (0, None, metrics)]
    assert read_choices(events(rows), AGENTS) == ()
    (fold,) = read_seed_weights(events(rows), AGENTS)
    assert (fold.weights, fold.sharpe) == ({7: 0.6, 3: 0.4}, {7: 0.5, 3: 0.1})
    assert fold.agents == {7: "ppo", 3: "a2c"}
    assert describe_choices((), [fold]).endswith(": seed 7 (ppo) 0.60, seed 3 (a2c) 0.40")


def test_seeds_of_equal_weight_are_not_described():
    assert describe_choices((), ()) == ""
    assert read_choice_messages(events([(0, 1, {})])) == ()
