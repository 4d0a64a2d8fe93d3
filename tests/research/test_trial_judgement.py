from itertools import pairwise

import numpy as np
import pytest

from nvtrader_pipelines.evaluation.backtest import backtest
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.evaluation.weights_backtest import STANDARD_EXECUTION
from nvtrader_pipelines.experiments.plan import RunPlan, policy_card
from nvtrader_pipelines.experiments.policy_accounts import build_accounts
from nvtrader_pipelines.experiments.thresholds import fit_thresholds
from nvtrader_pipelines.policies.archive import read_card, write_archive
from nvtrader_pipelines.policies.baselines import Cufolio
from nvtrader_pipelines.research.session_spec import is_random
from nvtrader_pipelines.research.trial_judgement import judge
from nvtrader_pipelines.scoreboard.contest_backtest import contest_environment
from nvtrader_pipelines.scoreboard.scorecard import Contest
from tests.markets import with_values
from tests.research.small_trials import (
    ALLOCATED,
    CUFOLIO,
    DIGEST,
    EQUAL,
    FOLDS,
    GUARDED,
    PANEL,
    PPO,
    RESIDUAL,
    job_of,
)

SEED = 5
CAPPED = EQUAL.model_copy(update={"agent": Cufolio(max_position_pct=0.1, cash_ceiling=0.1)})
SIX = tuple(Fold(i, 0, first - 6, first, last - 1) for i, (first, last) in enumerate(pairwise(range(150, 301, 25))))


def trained_archives(plan, seed):
    """Policy files of a seed as a run of the experiment trains them."""
    tasks = [plan.task((fold.index, seed)) for fold in plan.folds]
    fits = [task.agent.train(plan.panel, task.environment, task.window, task.seed) for task in tasks]
    cards = [policy_card(plan, task, fit) for task, fit in zip(tasks, fits, strict=True)]
    return {(card.fold, card.seed): write_archive(card, fit.tensors) for card, fit in zip(cards, fits, strict=True)}


def standard_environment(rebal_freq):
    contest = Contest(
        source=PANEL.source,
        panel_digest=DIGEST,
        first_session=PANEL.sessions[FOLDS[0].test_first].item(),
        last_session=PANEL.sessions[FOLDS[-1].test_last].item(),
        n_sessions=1,
        fill=STANDARD_EXECUTION.fill,
        costs=STANDARD_EXECUTION.costs,
        gross_limit=STANDARD_EXECUTION.gross_limit,
    )
    return contest_environment(contest, rebal_freq)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [PPO, RESIDUAL, GUARDED, CUFOLIO], ids=lambda spec: spec.name)
def test_trial_returns_equal_the_backtests_of_a_run_of_one_seed(spec):
    seed = 0 if spec is CUFOLIO else SEED
    alone = spec.model_copy(update={"seeds": (seed,)})
    curves = []
    for fold in FOLDS:
        plan = RunPlan(alone, PANEL, DIGEST, (fold,))
        archives = trained_archives(plan, seed)
        fitted = {fold.index: fit_thresholds(plan, archives, {}, fold)} if spec is GUARDED else {}
        (account,) = [each for each in build_accounts(plan, archives, {}, fitted) if each.kind == "ensemble"]
        record = backtest(PANEL, standard_environment(spec.environment.rebal_freq), [fold], [account])
        curves.append(record.equity_curves["net_return"].to_numpy())
    result = judge(job_of(spec, seed=seed), PANEL, DIGEST)
    assert (result.error, result.is_pruned, result.archives) == ("", False, {})
    np.testing.assert_array_equal(result.returns, np.concatenate(curves))
    assert result.fold_sharpes == tuple(sharpe_ratio(curve, 252) for curve in curves)


@pytest.mark.parametrize(("spec", "depends"), [(CUFOLIO, True), (ALLOCATED, True), (EQUAL, False)])
def test_scenario_seed_decides_the_draws_of_cufolio_alone(spec, depends):
    first, again, other = (judge(job_of(spec, scenario_seed=seed), PANEL, DIGEST).returns for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.array_equal(first, other) != depends
    assert is_random(spec) == depends


def test_kept_policies_are_the_files_of_the_experiment():
    result = judge(job_of(PPO, seed=SEED, keeps_policy=True), PANEL, "whole")
    expected = trained_archives(RunPlan(PPO, PANEL, "whole", FOLDS), SEED)
    assert result.archives == {fold: archive for (fold, _), archive in expected.items()}
    assert read_card(result.archives[1]).spec_hash == PPO.spec_hash


def test_environment_of_a_trial_prices_its_training_only():
    free = EQUAL.model_copy(update={"environment": EQUAL.environment.model_copy(update={"turnover_cost_bps": 0.0})})
    found, other = (judge(job_of(spec), PANEL, DIGEST).returns for spec in (EQUAL, free))
    np.testing.assert_array_equal(found, other)


@pytest.mark.parametrize(("ahead", "n_judged"), [(1.0, 5), (0.0, 6), (-1.0, 6)])
def test_trial_worse_than_the_best_in_every_fold_is_pruned(ahead, n_judged):
    complete = judge(job_of(EQUAL, folds=SIX), PANEL, DIGEST)
    best = tuple(sharpe + ahead for sharpe in complete.fold_sharpes)
    result = judge(job_of(EQUAL, folds=SIX, reference=best), PANEL, DIGEST)
    assert result.fold_sharpes == complete.fold_sharpes[:n_judged]
    assert result.is_pruned == (result.returns is None) == (n_judged < len(SIX))


def test_trial_is_never_pruned_after_its_last_fold():
    result = judge(job_of(EQUAL, folds=SIX[:5], reference=(100.0,) * 5), PANEL, DIGEST)
    assert not result.is_pruned
    assert len(result.returns) == 125


@pytest.mark.parametrize(
    ("spec", "folds"),
    [
        pytest.param(CAPPED, FOLDS, id="no portfolio within the caps"),
        pytest.param(PPO, (FOLDS[0], Fold(1, 0, 1, 220, 299)), id="second training too short"),
    ],
)
def test_trial_that_cannot_run_fails_in_one_line(spec, folds):
    result = judge(job_of(spec, folds=folds, keeps_policy=True), PANEL, DIGEST)
    assert (result.returns, result.archives) == (None, {})
    assert result.error
    assert "\n" not in result.error


def test_trial_with_constant_returns_fails():
    closed = with_values(PANEL, "eligible", slice(None), values=False)
    result = judge(job_of(EQUAL), closed, DIGEST)
    assert result.returns is None
    assert result.error
    assert result.fold_sharpes == (0.0, 0.0)
