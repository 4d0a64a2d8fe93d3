import dataclasses

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.splits import WalkForward
from nvtrader_pipelines.evaluation.truth import equity_gaps, off_simplex, reward_gaps
from nvtrader_pipelines.experiments.runtime import SURVIVORSHIP, RunPlan, judge, train, training_curves
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.policies.archive import PolicyArchiveError, read_archive
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight
from tests.markets import synthetic_panel
from tests.policies.small import AGENT, SPEC

EXPERIMENT = ExperimentSpec(
    name="tiny",
    environment=SPEC,
    agent=AGENT,
    splitter=WalkForward(train_months=12, test_months=12),
    baselines=(EqualWeight(), BuyAndHold()),
    seeds=(0, 1, 5),
)
KEYS = [(fold, seed) for fold in (0, 1) for seed in (0, 1, 5)]


def planned(spec=EXPERIMENT, panel=None):
    panel = panel or synthetic_panel(700, 3)
    return RunPlan(spec, panel, panel_digest(panel), tuple(spec.splitter.split(panel.sessions)))


@pytest.fixture(scope="module")
def plan():
    return planned()


@pytest.fixture(scope="module")
def archives(plan):
    return {(policy.fold, policy.seed): policy.archive for policy in train(plan)}


@pytest.fixture(scope="module")
def record(plan, archives):
    return judge(plan, archives)


def test_a_run_trains_every_fold_and_seed_on_the_folds_own_window(plan, archives):
    assert sorted(archives) == plan.keys == KEYS
    for (fold, seed), content in archives.items():
        card, _ = read_archive(content)
        window = plan.folds[fold]
        assert (card.fold, card.seed) == (fold, seed)
        assert (card.spec_hash, card.panel_digest) == (EXPERIMENT.spec_hash, plan.panel_digest)
        assert card.train_last == str(plan.panel.sessions[window.train_last])
        assert np.datetime64(card.train_last) < plan.panel.sessions[window.test_first]
        assert len(card.learning_curve) == 2


def test_the_seeds_of_a_fold_and_the_folds_of_a_seed_are_different_policies(archives):
    assert len(set(archives.values())) == len(KEYS)


def test_resuming_trains_only_what_is_not_done_and_gives_the_same_bytes(plan, archives):
    said = []
    resumed = {(policy.fold, policy.seed): policy.archive for policy in train(plan, KEYS[:5], said.append)}
    assert resumed == {KEYS[5]: archives[KEYS[5]]}
    assert said == ["tiny: trained fold 1 seed 5 (6 of 6)"]
    assert list(train(plan, KEYS)) == []


def test_the_bytes_of_a_policy_do_not_depend_on_the_snapshots_its_market_was_read_from(plan, archives):
    panel = dataclasses.replace(plan.panel, snapshot_ids={"gold.returns": 7})
    other = planned(panel=panel)
    assert other.run_id == plan.run_id
    (policy,) = train(other, KEYS[1:])
    assert policy.archive == archives[KEYS[0]]


def test_every_seed_their_ensemble_and_the_baselines_walk_through_the_same_sessions(plan, record):
    who = record.equity_curves.select("policy", "kind").unique(maintain_order=True)
    assert dict(who.iter_rows()) == {
        "tiny/seed-0": "policy",
        "tiny/seed-1": "policy",
        "tiny/seed-5": "policy",
        "tiny": "ensemble",
        "equal_weight": "baseline",
        "buy_and_hold": "baseline",
    }
    sessions = plan.panel.sessions[plan.folds[0].test_first : plan.folds[-1].test_last + 1].tolist()
    for _, curve in record.equity_curves.group_by("policy"):
        assert curve["session"].to_list() == sessions
    seeds = record.trajectories.select("policy", "seed").unique().drop_nulls()
    assert dict(seeds.iter_rows()) == {"tiny/seed-0": 0, "tiny/seed-1": 1, "tiny/seed-5": 5}


def test_a_judged_run_keeps_every_identity(record):
    assert equity_gaps(record.equity_curves).is_empty()
    assert off_simplex(record.action_logs).is_empty()
    assert reward_gaps(record.trajectories, record.reward_decomposition).is_empty()


def test_judging_again_gives_the_same_tables_bit_for_bit(plan, archives, record):
    again = judge(plan, dict(reversed(archives.items())))
    for name in ("trajectories", "equity_curves", "action_logs", "reward_decomposition"):
        assert getattr(again, name).equals(getattr(record, name))


def test_the_ensemble_is_the_average_of_its_seeds_at_the_first_decision(record):
    first = record.action_logs.filter(pl.col("step") == 0)
    wanted = dict(zip(first["policy"], first["target_weights"].to_list(), strict=True))
    seeds = [wanted[f"tiny/seed-{seed}"] for seed in (0, 1, 5)]
    np.testing.assert_allclose(wanted["tiny"], np.mean(seeds, axis=0), rtol=1e-14)


def test_a_policy_of_another_fold_seed_market_or_experiment_is_not_judged(plan, archives):
    swapped = {**archives, (0, 0): archives[1, 0]}
    with pytest.raises(PolicyArchiveError, match=r"policy of fold 0 seed 0 .* is one of fold 1 seed 0"):
        judge(plan, swapped)
    for other in (
        planned(EXPERIMENT.model_copy(update={"description": "another"})),
        planned(panel=synthetic_panel(700, 3, seed=1)),
    ):
        with pytest.raises(PolicyArchiveError, match="train the experiment again"):
            judge(other, archives)


def test_a_missing_policy_is_named(plan, archives):
    without = {key: content for key, content in archives.items() if key != (1, 5)}
    with pytest.raises(KeyError, match="fold 1 seed 5"):
        judge(plan, without)


def test_the_learning_curves_are_those_of_the_cards(archives):
    curves = training_curves(archives)
    assert curves.columns == ["fold", "seed", "timesteps", "mean_reward"]
    assert curves["timesteps"].to_list() == [128, 256] * len(KEYS)
    assert curves["mean_reward"].is_finite().all()


def test_the_run_id_is_that_of_the_spec_and_the_markets_content(plan):
    assert planned().run_id == plan.run_id
    assert len(plan.run_id) == 16
    assert planned(EXPERIMENT.model_copy(update={"seeds": (0, 1, 2)})).run_id != plan.run_id
    assert planned(panel=synthetic_panel(700, 3, seed=1)).run_id != plan.run_id


def test_a_run_warns_of_what_its_reader_must_know():
    assert planned().warnings == ()
    sample = dataclasses.replace(synthetic_panel(700, 3, opens=False), source="sample")
    survivors, fills = planned(panel=sample).warnings
    assert survivors == SURVIVORSHIP
    assert fills == "orders fill at the next_close, not the next_open asked for: the market has no opens"
    cheating = EXPERIMENT.model_copy(update={"environment": SPEC.model_copy(update={"fill": "same_close"})})
    assert "cheat-on-close" in planned(cheating).warnings[0]
