"""Experiment validated by combinatorial purged splits, from registration to verdict."""

import datetime as dt
import itertools

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.evaluation.invariants import equity_gaps, off_portfolio, reward_gaps, training_leaks
from nvtrader_pipelines.evaluation.splits import CombinatorialPurged
from nvtrader_pipelines.experiments.plan_kinds import VALIDATION_ONLY
from nvtrader_pipelines.experiments.policy_accounts import build_accounts
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.policies.archive import read_archive
from nvtrader_pipelines.policies.learned import open_policy
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import read_plan
from nvtrader_pipelines.runs.train_walk_judge import forward_run, replay_run
from nvtrader_pipelines.storage.policy_library import training_windows
from nvtrader_pipelines.storage.tables import ACTION_LOGS, EQUITY_CURVES, EVALUATIONS, RUNS
from tests.policies.small_learners import AGENT, SPEC
from tests.runs.small_runs import EXPERIMENT, market_home, rows_of, run_whole

pytestmark = pytest.mark.slow

VALIDATED = EXPERIMENT.model_copy(
    update={
        "agent": AGENT.model_copy(update={"total_timesteps": 128}),
        "environment": SPEC.model_copy(update={"rebal_freq": 2}),
        "splitter": CombinatorialPurged(n_folds=4, n_test_folds=2, purge_size=3, embargo_size=5),
    }
)
KEY = VALIDATED.partition_key
PATHS = [f"small/path-{p}" for p in range(3)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A home in which the experiment was run; only to be read."""
    store = market_home(tmp_path_factory.mktemp("validated") / "home")
    store.ledger.register(VALIDATED)
    assert [step.stage for step in run_whole(store, KEY, Launch("task"))][-1] == "done"
    return store


@pytest.fixture(scope="module")
def run(store):
    return store.policies.read_latest(KEY)


@pytest.fixture(scope="module")
def rows(store, run):
    return rows_of(store, run.run_id)


@pytest.fixture(scope="module")
def plan(store):
    return read_plan(store, KEY)


def test_every_split_has_one_policy_per_seed(run):
    assert len(run.policies) == 6 * 3


def test_every_path_is_an_account_over_all_sessions_but_the_first(rows, plan):
    curves = rows[EQUITY_CURVES.name]
    kinds = dict(curves.select("policy", "kind").unique().iter_rows())
    assert kinds == {
        **dict.fromkeys(PATHS, "policy"),
        "small": "ensemble",
        "equal_weight": "baseline",
        "buy_and_hold": "baseline",
    }
    for account in curves.partition_by("policy"):
        assert account["session"].sort().to_list() == plan.panel.sessions[1:].tolist()


def test_tables_have_a_verdict_per_block_and_meet_the_identities(rows, store, run):
    verdict = rows[EVALUATIONS.name]
    assert set(verdict["fold"].drop_nulls()) == {0, 1, 2, 3}
    assert set(verdict.filter(pl.col("period") == "all")["policy"]) >= {*PATHS, "small"}
    assert off_portfolio(rows[ACTION_LOGS.name], RiskLimits()).is_empty()
    assert equity_gaps(rows[EQUITY_CURVES.name]).is_empty()
    assert reward_gaps(rows["rl.trajectories"], rows["rl.reward_decomposition"]).is_empty()
    assert store.ledger.run(run.run_id).status == "done"


def test_path_takes_the_seeds_of_the_next_split_per_block(store, run, plan):
    archives = store.policies.read_run(run)
    accounts = {who.name: who for who in build_accounts(plan, archives, {}, {})}
    tested = list(itertools.combinations(range(4), 2))
    everybody = []
    for block in range(4):
        splits = [split for split, blocks in enumerate(tested) if block in blocks]
        for path, split in zip(PATHS, splits, strict=True):
            wanted = np.mean([target(plan, archives[split, seed]) for seed in VALIDATED.seeds], axis=0)
            np.testing.assert_array_equal(first_decision(plan, accounts[path].policies[block]), wanted)
            everybody.append(wanted)
        mean = np.mean(everybody[-len(splits) :], axis=0)
        np.testing.assert_allclose(first_decision(plan, accounts["small"].policies[block]), mean, atol=1e-15)


def target(plan, archive):
    return first_decision(plan, open_policy(*read_archive(archive), plan.panel))


def first_decision(plan, policy):
    return policy.decide(plan.panel, 50, opening_account(len(plan.panel.symbols))).target


def test_leak_check_compares_every_training_window_with_the_tests(store, run, rows):
    training, splitter = training_windows(run, store.policies.read_run(run)), VALIDATED.splitter
    curves = rows[EQUITY_CURVES.name]
    n_stretches = sum(len(fold.in_days.train) for fold in run.folds)
    assert len(training) == n_stretches * 2 * 3  # each is compared with two blocks, for three seeds
    assert training_leaks(training, curves, splitter.purge_size, splitter.embargo_size, NEW_YORK).is_empty()
    exchanged = training.with_columns(fold=3 - pl.col("fold"))
    assert not training_leaks(exchanged, curves, splitter.purge_size, splitter.embargo_size, NEW_YORK).is_empty()


def test_run_warns_of_training_after_its_tests(store, run):
    assert VALIDATION_ONLY in run.warnings
    assert store.tables.read(RUNS)["warnings"].to_list() == [list(run.warnings)]
    assert store.tables.read(RUNS)["validation_only"].to_list() == [True]
    for content in store.policies.read_run(run).values():
        card, _ = read_archive(content)
        assert VALIDATION_ONLY in card.warnings


def test_policies_of_a_validation_run_cannot_be_reused(store, run):
    for window in ((), ((dt.date(2016, 6, 1), dt.date(2016, 8, 1)),)):
        with pytest.raises(ValueError):
            replay_run(store, run.run_id, Launch("replay"), *window)
    with pytest.raises(ValueError):
        forward_run(store, run.run_id, Launch("forward"))
