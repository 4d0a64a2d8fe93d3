from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.splits import Block, CombinatorialPurged, Fold, Holdout, PurgedKFold
from nvtrader_pipelines.experiments.designs import BestOfNDesign
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.policy_accounts import build_accounts, mean_thresholds
from nvtrader_pipelines.experiments.recorded_folds import Parent, fold_dates
from nvtrader_pipelines.experiments.replay import replay_plan
from nvtrader_pipelines.experiments.thresholds import fit_thresholds
from nvtrader_pipelines.policies.archive import read_archive
from nvtrader_pipelines.policies.baselines import AnchorPortfolio, EqualWeight
from nvtrader_pipelines.policies.learned import EnsemblePolicy, open_policy
from nvtrader_pipelines.portfolio.pipeline import Thresholds, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.limits import GrossExposure, PositionCap, SectorCap
from nvtrader_pipelines.portfolio.pipeline.regime_guard import RegimeGuard
from nvtrader_pipelines.portfolio.pipeline.timings import VolatilityTargetTiming
from nvtrader_pipelines.portfolio.pipeline.turbulence import TurbulenceTiming
from tests.experiments.memory import MemoryStore, runtime, walk_and_judge
from tests.experiments.pipelines import TIMINGS, timed
from tests.experiments.small import EXPERIMENT, TABLES, planned
from tests.markets import synthetic_panel
from tests.panels import with_other_future


@pytest.fixture(scope="module", params=TIMINGS)
def walked(request, behind):
    """The plan and the store of a whole run with each timing."""
    return behind(request.param)


@pytest.fixture(scope="module")
def guarded(behind):
    return behind("regime_guard")


def moved(plan, t):
    """The plan on the market with another future, which it takes for the one its policies were trained on."""
    return RunPlan(plan.spec, with_other_future(plan.panel, t), plan.panel_digest, plan.folds)


def test_fitted_timing_stores_and_reports_thresholds_per_fold(walked):
    plan, store = walked
    reported = [step for step in store.reported if "fitted the" in step.message]
    if not plan.spec.pipeline.timing.needs_fit:
        assert store.fitted == {}
        assert reported == []
        return
    assert list(store.fitted) == [fold.index for fold in plan.folds]
    assert [step.fold for step in reported] == list(store.fitted)
    for step in reported:
        known = store.fitted[step.fold].model_dump(exclude_none=True)
        assert step.metrics == known
        assert all(f"{name.replace('_', ' ')} {value:.4g}" in step.message for name, value in known.items())
    assert len(set(map(repr, store.fitted.values()))) == len(plan.folds)


@pytest.mark.slow
def test_thresholds_do_not_know_what_came_after_their_training(walked):
    plan, store = walked
    for fold in plan.folds:
        after = moved(plan, fold.train_last)
        again = fit_thresholds(after, store.archives(), {}, fold)
        assert again == store.fitted.get(fold.index, Thresholds())


@pytest.mark.slow
def test_account_thresholds_are_fitted_to_the_untimed_training_account(guarded):
    plan, store = guarded
    fold = plan.folds[0]
    opened = [open_policy(*read_archive(store.archives()[fold.index, seed]), plan.panel) for seed in plan.spec.seeds]
    own = PolicyAccount("own", "ensemble", (None,), (EnsemblePolicy(opened),))
    training = Block(0, fold.train_first + 1, fold.train_last)
    curve = backtest(plan.panel, plan.spec.environment, [training], [own]).equity_curves
    assert store.fitted[0].drawdown == float(np.quantile(curve["drawdown"].to_numpy(), 0.5))
    trades = curve.filter(pl.col("turnover") > 0.0)["turnover"].to_numpy()[1:]
    assert store.fitted[0].turnover == float(np.quantile(trades, 0.5))


def test_each_stretch_of_a_training_is_walked_from_cash(plan):
    spec = EXPERIMENT.model_copy(
        update={"agent": AnchorPortfolio(), "seeds": (0,), "pipeline": timed(RegimeGuard(quantile=0.5))}
    )
    stretches = [(0, 150), (300, 420)]
    fold = Fold.of(0, stretches, [(180, 270)])
    found = fit_thresholds(RunPlan(spec, plan.panel, plan.panel_digest, (fold,)), {}, {}, fold)
    drawdowns, turnovers, trailing = [], [], []
    for first, last in stretches:
        own = PolicyAccount("own", "ensemble", (None,), (AnchorPortfolio().start(),))
        curve = backtest(plan.panel, spec.environment, [Block(0, first + 1, last)], [own]).equity_curves
        drawdowns.append(curve["drawdown"].to_numpy())
        turnovers.append(curve.filter(pl.col("turnover") > 0.0)["turnover"].to_numpy()[1:])
        growth = (curve["net_return"] + 1.0).log()
        trailing.append(growth.rolling_sum(42, min_samples=1).exp().to_numpy() - 1.0)
    assert found.trailing_return == pytest.approx(min(0.0, np.quantile(np.concatenate(trailing), 0.5)), abs=1e-12)
    assert found.drawdown == float(np.quantile(np.concatenate(drawdowns), 0.5))
    assert found.turnover == float(np.quantile(np.concatenate(turnovers), 0.5))


@pytest.mark.slow
@pytest.mark.parametrize("splitter", [PurgedKFold(n_folds=3), CombinatorialPurged(n_folds=4)], ids=lambda s: s.kind)
@pytest.mark.parametrize("timing", ["turbulence", "regime_guard"])
def test_what_a_fold_tests_does_not_change_what_its_timing_is_fitted_to(splitter, timing):
    changes = {"agent": EqualWeight(), "seeds": (0,), "pipeline": timed(TIMINGS[timing]), "splitter": splitter}
    own = planned(EXPERIMENT.model_copy(update=changes))
    for fold in own.folds[:2]:
        tested = np.concatenate([np.arange(first, last + 1) for first, last in fold.test])
        returns = {name: getattr(own.panel, name).copy() for name in ("close_returns", "overnight_returns")}
        for values in returns.values():
            values[tested] = np.random.default_rng(3).normal(0.0, 0.1, values[tested].shape)
        other = replace(own, panel=replace(own.panel, **returns))
        assert fit_thresholds(other, {}, {}, fold) == fit_thresholds(own, {}, {}, fold)


def test_sessions_that_are_held_out_to_choose_a_seed_are_not_fitted_on():
    changes = {"design": BestOfNDesign(validation_sessions=40), "pipeline": timed(TIMINGS["turbulence"])}
    own = planned(EXPERIMENT.model_copy(update=changes))
    fold = own.folds[0]
    last = fold.train_last - 40 - own.spec.splitter.purge_size
    kept, changed = (fit_thresholds(moved(own, t), {}, {}, fold) for t in (last, last - 60))
    assert kept == fit_thresholds(own, {}, {}, fold) != changed


def test_a_stretch_of_one_session_is_no_path(plan):
    changes = {"agent": EqualWeight(), "seeds": (0,), "pipeline": timed(RegimeGuard(quantile=0.5))}
    spec = EXPERIMENT.model_copy(update=changes)
    with_it, without = (Fold.of(0, [(0, 150), *more], [(180, 270)]) for more in ([(300, 300)], []))
    found = [
        fit_thresholds(RunPlan(spec, plan.panel, plan.panel_digest, (fold,)), {}, {}, fold)
        for fold in (with_it, without)
    ]
    assert found[0] == found[1]


@pytest.mark.slow
def test_replay_is_bit_identical_with_every_timing(walked):
    plan, run = walked
    parent = Parent(plan.run_id, fold_dates(plan))
    again, store = replay_plan(plan.spec, plan.panel, parent), MemoryStore(parent=run)
    steps = list(walk_and_judge(again, store))
    assert not [step for step in steps if "fitted the" in step.message]
    for name in TABLES:
        was, is_now = getattr(run.record, name), getattr(store.record, name)
        if name == "trajectories":
            was, is_now = was.drop("phase"), is_now.drop("phase")
        assert is_now.equals(was)


@pytest.mark.slow
def test_a_replay_takes_the_thresholds_that_were_kept_and_fits_none(guarded, run):
    untimed = run.record
    plan, run = guarded
    parent = Parent(plan.run_id, fold_dates(plan))
    changed = MemoryStore(parent=MemoryStore())
    changed.parent.policies, changed.parent.sealed = run.policies, {}
    none = Thresholds(drawdown=1.0, trailing_return=-0.99, turnover=1.0)  # that no account passes
    changed.parent.fitted = dict.fromkeys(run.fitted, none)
    list(walk_and_judge(replay_plan(plan.spec, plan.panel, parent), changed))
    own = pl.col("policy") == "tiny"
    logs = [record.action_logs.filter(own) for record in (changed.record, run.record, untimed)]
    now, timed_by_its_own, without = (log["target_weights"] for log in logs)
    assert not now.equals(timed_by_its_own)
    assert now.equals(without)


def test_a_fitted_timing_without_thresholds_is_refused(guarded):
    plan, store = guarded
    with pytest.raises(ValueError):
        build_accounts(plan, store.archives(), {}, {0: store.fitted[0]})


def test_where_several_folds_decide_each_threshold_is_their_mean():
    one, other = Thresholds(drawdown=0.1, turnover=0.2), Thresholds(drawdown=0.3, turnover=0.6)
    assert mean_thresholds([one]) is one
    found = mean_thresholds([one, other])
    assert (found.drawdown, found.turnover) == pytest.approx((0.2, 0.4))
    assert found.turbulence is None


def test_unfittable_timing_raises_before_training(plan):
    spec = EXPERIMENT.model_copy(update={"pipeline": timed(TurbulenceTiming(threshold=None, history=600))})
    store = MemoryStore()
    with pytest.raises(ValueError):
        list(runtime(RunPlan(spec, plan.panel, plan.panel_digest, plan.folds), store).train())
    assert store.policies == {}


@pytest.mark.parametrize("timing", [TurbulenceTiming(threshold=None, history=500), RegimeGuard()])
def test_plan_rejects_training_too_short_for_its_timing(timing):
    days = synthetic_panel(700, 3).sessions[[250, 261]].tolist()
    changes = {"pipeline": timed(timing), "splitter": Holdout(train_first=days[0], test_first=days[1])}
    with pytest.raises(ValueError):
        planned(EXPERIMENT.model_copy(update=changes))


def test_plan_rejects_market_shorter_than_a_volatility_window(plan):
    n_sessions = len(plan.panel.sessions)
    assert planned(EXPERIMENT.model_copy(update={"pipeline": timed(VolatilityTargetTiming(window=n_sessions))}))
    with pytest.raises(ValueError):
        planned(EXPERIMENT.model_copy(update={"pipeline": timed(VolatilityTargetTiming(window=n_sessions + 1))}))


def test_market_lacking_stage_data_raises_before_training(plan):
    pipeline = WeightPipeline(limits=(PositionCap(), GrossExposure(), SectorCap(sectors={"AAA": "oil"})))
    spec = EXPERIMENT.model_copy(update={"pipeline": pipeline})
    store = MemoryStore()
    with pytest.raises(ValueError):
        list(runtime(RunPlan(spec, plan.panel, plan.panel_digest, plan.folds), store).train())
    assert store.policies == {}


def test_timing_is_fitted_on_a_market_that_ends_with_its_training(monkeypatch, behind):
    plan, store = behind("turbulence")
    last = {}
    monkeypatch.setattr(
        TurbulenceTiming, "fit", lambda _, panel, windows, __: last.update({panel.sessions[-1]: windows})
    )
    for fold in plan.folds:
        fit_thresholds(plan, store.archives, {}, fold)
    assert last == {plan.panel.sessions[windows[-1][1]]: windows for windows in map(plan.fitting_windows, plan.folds)}
