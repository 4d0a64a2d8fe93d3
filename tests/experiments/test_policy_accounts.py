import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.splits import Block
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.experiments.designs import BasicDesign, BestOfNDesign
from nvtrader_pipelines.experiments.policy_accounts import build_accounts, weigh_seeds
from nvtrader_pipelines.policies.archive import read_archive
from nvtrader_pipelines.policies.baselines import BuyAndHold
from nvtrader_pipelines.policies.learned import open_policy
from tests.experiments.small import EXPERIMENT, TABLES, planned, trained

pytestmark = pytest.mark.slow

N_HELD_OUT, PURGE = 40, 6
BEST_OF = EXPERIMENT.model_copy(update={"design": BestOfNDesign(validation_sessions=N_HELD_OUT)})


@pytest.fixture(scope="module")
def best_plan():
    return planned(BEST_OF)


@pytest.fixture(scope="module")
def best(best_plan):
    """The store of a whole run that takes the best of its seeds."""
    return trained(best_plan)


def test_the_best_of_n_trains_a_purge_before_the_sessions_it_holds_out(best_plan, best):
    sessions = best_plan.panel.sessions
    for (k, _), content in best.archives().items():
        card, _ = read_archive(content)
        fold = best_plan.folds[k]
        assert np.datetime64(card.train_last) == sessions[fold.train_last - N_HELD_OUT - PURGE]
        assert best_plan.validation_window(fold) == (fold.train_last - N_HELD_OUT + 1, fold.train_last)


def test_weigh_seeds_maximizes_validation_sharpe_ratio(best_plan, best):
    for fold in best_plan.folds:
        first, last = best_plan.validation_window(fold)
        found = {}
        for seed in BEST_OF.seeds:
            policy = open_policy(*read_archive(best.archives()[fold.index, seed]), best_plan.panel)
            alone = PolicyAccount("x", "policy", (seed,), (policy,))
            held_out = Block(fold.index, first, last)
            curve = backtest(best_plan.panel, BEST_OF.environment, [held_out], [alone]).equity_curves
            found[seed] = sharpe_ratio(curve["net_return"].to_numpy(), 252)
        choice = weigh_seeds(best_plan, best.archives(), fold)
        assert dict(choice.sharpe) == found
        assert choice.seed == max(found, key=found.__getitem__)
        assert best.sealed[fold.index] == choice.weights == {choice.seed: 1.0}


def test_seed_choice_is_reported_with_its_sharpe_ratios(best_plan, best):
    choices = [step for step in best.reported if step.stage == "evaluate.step" and "validation Sharpe" in step.message]
    assert {step.fold: {step.seed: 1.0} for step in choices} == best.sealed
    for step in choices:
        assert set(step.metrics) == {f"sharpe/seed-{seed}" for seed in BEST_OF.seeds}


def test_the_experiments_own_account_follows_the_seed_chosen_in_each_fold(best_plan, best):
    steps = best.record.trajectories
    own = steps.filter(pl.col("policy") == "tiny")
    assert {fold: {seed: 1.0} for fold, seed in own.select("fold", "seed").unique().iter_rows()} == best.sealed
    first = own.filter(pl.col("step") == 0)
    twin = steps.filter(pl.col("policy") == f"tiny/seed-{first['seed'][0]}", pl.col("step") == 0)
    assert first["action"].to_list() == twin["action"].to_list()


def test_no_other_design_chooses(plan, run):
    assert run.sealed == {}
    assert plan.validated_folds == ()
    assert run.record.trajectories.filter(pl.col("policy") == "tiny")["seed"].null_count() > 0


def test_the_basic_design_runs_the_last_fold_alone(plan):
    basic = planned(EXPERIMENT.model_copy(update={"design": BasicDesign()}))
    assert basic.folds == plan.folds[-1:]
    assert basic.keys == [(1, 0), (1, 1), (1, 5)]


def test_an_account_shares_no_policy_with_another(plan, run):
    decide = [policy for who in build_accounts(plan, run.archives(), {}, {}) for policy in who.policies]
    policies = [getattr(policy, "_policy", policy) for policy in decide]  # behind the pipeline
    members = [member for policy in policies for member in getattr(policy, "_members", [policy])]
    learned = [member for member in members if hasattr(member, "_network")]
    assert len(learned) == len({id(member) for member in learned}) == 2 * len(plan.keys)


def test_a_classical_agent_keeps_one_account_over_all_folds():
    spec = EXPERIMENT.model_copy(update={"agent": BuyAndHold(), "seeds": (0,)})
    store = trained(planned(spec))
    accounts = store.record.equity_curves.partition_by("policy", as_dict=True)
    assert list(accounts) == [("tiny",), ("equal_weight",), ("buy_and_hold",)]
    own, baseline = accounts["tiny",], accounts["buy_and_hold",]
    assert own.drop("policy", "kind").equals(baseline.drop("policy", "kind"))
    assert set(own["kind"]) == {"ensemble"}
    assert (own["turnover"] > 0.0).sum() == 1  # bought once, in the first fold
    assert store.reported[-1].stage == "done"


def test_a_classical_agents_replay_is_the_same_again():
    spec = EXPERIMENT.model_copy(update={"agent": BuyAndHold(), "seeds": (0,)})
    first, second = (trained(planned(spec)) for _ in range(2))
    for name in TABLES:
        assert getattr(first.record, name).equals(getattr(second.record, name))


def test_run_walks_anchor_of_its_action_with_the_baselines():
    environment = EXPERIMENT.environment.model_copy(update={"action": ResidualAction()})
    spec = EXPERIMENT.model_copy(update={"agent": BuyAndHold(), "seeds": (0,), "environment": environment})
    plan = planned(spec)
    record = trained(plan).record
    targets = record.action_logs.filter(policy="anchor").sort("step")
    assert targets["kind"].unique().to_list() == ["baseline"]
    decided = np.searchsorted(plan.panel.sessions, targets["session"].to_numpy())
    anchor = ResidualAction().anchor.weights(plan.panel)[decided]
    np.testing.assert_array_equal(np.stack(targets["target_weights"].to_numpy()), anchor)
