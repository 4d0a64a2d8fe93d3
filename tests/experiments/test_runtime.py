import dataclasses
import itertools
import json
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.invariants import equity_gaps, off_portfolio, reward_gaps
from nvtrader_pipelines.experiments.runtime import TrainingProgress, evaluate_run, training_curves
from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.policies.archive import PolicyArchiveError, read_archive
from nvtrader_pipelines.policies.baselines import MinimumVariance
from nvtrader_pipelines.policies.rollout_tables import TRAJECTORY
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from tests.experiments.memory import MemoryStore, runtime
from tests.experiments.small import EXPERIMENT, KEYS, TABLES, planned, trained
from tests.markets import synthetic_panel
from tests.policies.small_learners import AGENT


@pytest.fixture(scope="module")
def archives(run):
    return run.archives()


@pytest.fixture(scope="module")
def record(run):
    return run.record


def judged(plan, archives, seed_weights=None):
    """The record of policies walked again."""
    store = MemoryStore()
    store.archives, store.sealed = lambda: archives, seed_weights or {}
    for _ in runtime(plan, store).walk():
        pass
    return store.record


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


def test_every_fold_and_seed_has_a_different_policy(archives):
    assert len(set(archives.values())) == len(KEYS)


@pytest.fixture(scope="module")
def continued(plan, run):
    """Plan, store and reports of a training of the one policy that is missing, on other snapshots."""
    other = planned(panel=dataclasses.replace(plan.panel, snapshot_ids={"gold.returns": 7}))
    store = MemoryStore()
    store.policies = {key: run.policies[key] for key in KEYS[:5]}
    return other, store, list(runtime(other, store).train())


def test_training_goes_on_with_what_is_not_done_and_gives_the_same_bytes(continued, archives):
    plan, store, reported = continued
    assert store.archives() == archives
    assert {(step.fold, step.seed) for step in reported if step.stage == "train.step"} == {KEYS[5]}
    assert [step.stage for step in runtime(plan, store).train() if step.stage.startswith("train")] == []


@pytest.mark.slow
def test_resumed_training_gives_identical_bytes(plan, run, archives):
    store = MemoryStore()
    store.policies = {key: run.policies[key] for key in KEYS[1:]}
    steps = runtime(plan, store).train()
    until = next(step for step in steps if step.stage == "train.checkpoint")
    steps.close()
    assert "can be resumed" in until.message
    assert KEYS[0] not in store.policies
    assert set(store.checkpoints) == {KEYS[0]}
    list(runtime(plan, store).train())
    assert store.archives() == archives
    assert store.policies[KEYS[0]].rollouts.equals(run.policies[KEYS[0]].rollouts)
    assert store.checkpoints == {}


@pytest.mark.slow
def test_training_progress_reports_count_pace_and_remaining_time(continued):
    reported = [step for step in continued[2] if step.fold is not None]
    begun = [step for step in reported if step.stage == "train.step"]
    n = len(KEYS)
    for step in begun:
        assert step.metrics["steps_per_second"] > 0.0
        assert re.search(rf" timesteps \(\d of {n} trained; \d+ steps/s, 0:00:\d\d left\)$", step.message)
    assert re.search(rf": trained \({n} of {n} trained; \d+ steps/s, 0:00:00 left\)$", reported[-1].message)


def test_the_pace_of_a_resumed_training_counts_from_where_it_went_on():
    begin, seconds = datetime(2026, 1, 1, tzinfo=UTC), itertools.count(step=10)
    training = TrainingProgress(
        [(0, 0), (0, 1)], [(0, 1)], [(0, 0)], clock=lambda: begin + timedelta(seconds=next(seconds))
    )
    assert training.update((0, 0), 0.9) == pytest.approx(0.95)
    assert training.pace(1000) == " (1 of 2 trained)"
    training.update((0, 0), 0.95)
    assert training.trainings_per_second == pytest.approx(0.05 / 20.0)
    training.finish((0, 0))
    assert training.pace(1000).startswith(" (2 of 2 trained; ")


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over(plan, run, archives):
    store = MemoryStore()
    store.policies = {key: run.policies[key] for key in KEYS[1:]}
    store.checkpoints = {KEYS[0]: b"no checkpoint"}
    list(runtime(plan, store).train())
    assert store.archives() == archives


def test_each_phase_reports_its_stages_in_order_and_its_share(run):
    trained = next(i for i, step in enumerate(run.reported) if step.stage == "done") + 1
    training, testing = run.reported[:trained], run.reported[trained:]
    for steps, stages in ((training, {"train.step", "train.checkpoint"}), (testing, {"evaluate.step"})):
        assert [step.stage for step in steps[:4]] == ["start", "data.loaded", "env.built", "agent.built"]
        assert steps[-1].stage == "done"
        assert {step.stage for step in steps[4:-1]} == stages
        shares = [step.share for step in steps]
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0.0, 1.0)
        assert len({(step.task_id, step.run_id) for step in steps}) == 1
        assert [step.timestamp for step in steps] == sorted({step.timestamp for step in steps})


def test_every_step_of_a_training_says_whose_it_is_and_how_it_goes(run):
    steps = [step for step in run.reported if step.stage == "train.step"]
    assert {(step.fold, step.seed) for step in steps} == set(KEYS)
    for step in steps:
        assert 0 < step.timesteps <= step.total_timesteps == AGENT.total_timesteps
        assert np.isfinite(step.metrics["mean_reward"])


def test_a_run_ends_with_the_figures_of_its_verdict(run):
    store, reported = run, run.reported
    own = store.verdict.filter(pl.col("policy") == "tiny", pl.col("period") == "all").row(0, named=True)
    metrics = reported[-1].metrics
    assert (metrics["all/sharpe"], metrics["all/max_drawdown"]) == (own["sharpe"], own["max_drawdown"])
    assert set(store.verdict["period"]) >= {"fold", "all"}


@pytest.mark.slow
def test_run_is_annualized_by_the_calendar_of_its_panel(plan, run):
    panel = dataclasses.replace(plan.panel, calendar=TradingCalendar("24/7"))
    verdict = evaluate_run(dataclasses.replace(plan, panel=panel), *run.curves_and_actions())
    root = (365 / 252) ** 0.5
    np.testing.assert_allclose(verdict["sharpe"], root * run.verdict["sharpe"], rtol=1e-9)
    np.testing.assert_allclose(verdict["iqm_sharpe"], root * run.verdict["iqm_sharpe"], rtol=1e-9)


def test_sampled_training_episodes_become_trajectory_rows(run):
    rollouts = pl.concat([policy.rollouts for policy in run.policies.values()])
    assert dict(rollouts.schema) == TRAJECTORY
    assert set(rollouts["phase"]) == {"train"}
    for (fold, seed), policy in run.policies.items():
        who = policy.rollouts.select("policy", "kind", "fold", "seed").unique().rows()
        assert who in ([], [(f"tiny/seed-{seed}", "policy", fold, seed)])
    terms = [sum(json.loads(info)["reward_terms"].values()) for info in rollouts["info"]]
    np.testing.assert_allclose(terms, rollouts["reward"], atol=1e-12)


@pytest.mark.slow
def test_closing_the_generator_ends_trainings_without_partial_results(plan):
    store = MemoryStore()
    steps = runtime(plan, store).train()
    next(step for step in steps if step.stage == "train.step")
    steps.close()
    assert store.sealed is None


def test_policy_bytes_do_not_depend_on_snapshot_ids(plan, continued, archives):
    other, store, _ = continued
    assert other.run_id == plan.run_id
    assert other.panel.snapshot_ids != plan.panel.snapshot_ids
    assert store.archives() == archives


def test_all_accounts_walk_through_the_same_sessions(plan, record):
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
    assert off_portfolio(record.action_logs, RiskLimits()).is_empty()
    assert reward_gaps(record.trajectories, record.reward_decomposition).is_empty()


@pytest.mark.slow
def test_judging_again_gives_the_same_tables_bit_for_bit(plan, archives, record):
    again = judged(plan, dict(reversed(archives.items())))
    for name in TABLES:
        assert getattr(again, name).equals(getattr(record, name))


def test_the_ensemble_is_the_average_of_its_seeds_at_the_first_decision(record):
    first = record.action_logs.filter(pl.col("step") == 0)
    wanted = dict(zip(first["policy"], first["target_weights"].to_list(), strict=True))
    seeds = [wanted[f"tiny/seed-{seed}"] for seed in (0, 1, 5)]
    np.testing.assert_allclose(wanted["tiny"], np.mean(seeds, axis=0), rtol=1e-14)


RULE = MinimumVariance(history=60, estimate_every=20)  # its decisions depend on when it began


@pytest.fixture(scope="module")
def reported(plan):
    """The plan of a rule whose reported period begins within the last fold, off its account's grid of decisions."""
    first = plan.panel.sessions[plan.folds[-1].test_first + 52].item()
    spec = EXPERIMENT.model_copy(update={"agent": RULE, "seeds": (0,), "report_from": first})
    return planned(spec, plan.panel)


@pytest.fixture(scope="module")
def reopened(reported):
    """The record of its walk."""
    return trained(reported).record


@pytest.mark.slow
def test_reported_period_is_walked_by_accounts_opened_at_its_start(reported, reopened):
    last = reported.stretches[-1]
    alone = trained(dataclasses.replace(reported, folds=last.folds)).record.equity_curves
    names = ["policy", "fold", "session", "net_return", "drawdown", "turnover", "cost", "cash"]
    curves = reopened.equity_curves.filter(pl.col("session") >= reported.spec.report_from)
    assert curves.select(names).equals(alone.select(names))


@pytest.mark.slow
def test_sessions_before_the_reported_period_are_walked_as_without_one(reported, reopened):
    spec = reported.spec.model_copy(update={"report_from": None})
    whole = trained(planned(spec, reported.panel)).record.equity_curves
    before = pl.col("session") < reported.spec.report_from
    assert reopened.equity_curves.filter(before).equals(whole.filter(before))
    assert not reopened.equity_curves.filter(~before).equals(whole.filter(~before))


def test_accounts_opened_anew_keep_every_identity(reopened):
    assert equity_gaps(reopened.equity_curves).is_empty()
    assert off_portfolio(reopened.action_logs, RiskLimits()).is_empty()
    assert reward_gaps(reopened.trajectories, reopened.reward_decomposition).is_empty()
    steps = reopened.trajectories.filter(policy="tiny").sort("step")
    assert steps["step"].to_list() == list(range(len(steps)))
    assert steps["episode"].is_sorted()
    assert steps.filter("truncated")["episode"].to_list() == [0, 1]


def test_forward_run_is_walked_by_one_account(reported):
    assert [len(part.folds) for part in reported.stretches] == [2, 1]
    (forward,) = dataclasses.replace(reported, kind="forward").stretches
    assert forward.folds == reported.folds


def test_a_policy_of_another_fold_seed_market_or_experiment_is_not_judged(plan, archives):
    swapped = {**archives, (0, 0): archives[1, 0]}
    with pytest.raises(PolicyArchiveError):
        judged(plan, swapped)
    for other in (
        planned(EXPERIMENT.model_copy(update={"description": "another"})),
        planned(panel=synthetic_panel(700, 3, seed=1)),
    ):
        with pytest.raises(PolicyArchiveError):
            judged(other, archives)


def test_a_missing_policy_is_named(plan, archives):
    without = {key: content for key, content in archives.items() if key != (1, 5)}
    with pytest.raises(KeyError, match="fold 1 seed 5"):
        judged(plan, without)


def test_the_learning_curves_are_those_of_the_cards(archives):
    curves = training_curves(archives)
    assert curves.columns == ["fold", "seed", "timesteps", "mean_reward"]
    assert curves["timesteps"].to_list() == [128, 256] * len(KEYS)
    assert curves["mean_reward"].is_finite().all()
