from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.backtest import backtest, walk
from nvtrader_pipelines.evaluation.weights_backtest import Execution
from nvtrader_pipelines.experiments.policy_accounts import build_accounts
from nvtrader_pipelines.experiments.recorded_folds import Parent, fold_dates
from nvtrader_pipelines.experiments.stress_run import stressed_accounts
from nvtrader_pipelines.policies.pipeline_policy import PipelinedPolicy
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline
from nvtrader_pipelines.scoreboard.contest_backtest import run_contest_backtest
from nvtrader_pipelines.scoreboard.entrants import run_entrant
from tests.experiments.pipelines import piped
from tests.experiments.small import TABLES
from tests.scoreboard.test_contest_backtest import contest_on, metered

pytestmark = pytest.mark.slow
OWN = pl.col("policy") == "tiny"


@pytest.fixture(
    scope="module", params=["constant", pytest.param("turbulence", marks=pytest.mark.nightly), "regime_guard"]
)
def timed(request, behind):
    """The plan and the store of a whole run with each timing."""
    return behind(request.param)


@pytest.fixture(scope="module")
def capped(plan, run):
    """The run behind the default pipeline, whose cap of a quarter binds on three names."""
    return piped(plan, run, WeightPipeline())


@pytest.fixture(scope="module")
def judged(timed):
    """What a run did as an entrant of a contest under its own environment."""
    plan, store = timed
    parent = Parent(plan.run_id, fold_dates(plan))
    entrant = run_entrant("tiny", plan.spec, parent, store.archives(), store.seed_weights(), store.thresholds())
    environment = plan.spec.environment
    terms = Execution(fill=environment.fill, costs=environment.cost_models)
    return run_contest_backtest(entrant, plan.panel, contest_on(plan.panel, plan.window, terms), metered())


def test_the_weights_on_record_are_those_that_the_pipeline_gave(timed):
    plan, store = timed
    who = build_accounts(plan, store.archives(), store.seed_weights(), store.thresholds())
    logs = store.record.action_logs.partition_by("step", maintain_order=True)
    steps = list(walk(plan.panel, plan.spec.environment, plan.folds, who))
    assert len(steps) == len(logs)
    for step, log in zip(steps, logs, strict=True):
        for decision, target, kind in zip(step.decisions, log["target_weights"].to_list(), log["kind"], strict=True):
            assert (decision.pipeline is None) == (kind == "baseline")
            if decision.pipeline is not None:
                assert decision.target is decision.pipeline.weights
                assert decision.pipeline.weights.tolist() == target


def test_the_timing_acts_in_some_decisions_and_not_on_baselines(timed, run):
    _, store = timed
    same = [
        (account, log["target_weights"].equals(other["target_weights"]))
        for (account,), log in store.record.action_logs.partition_by("policy", as_dict=True).items()
        for other in [run.record.action_logs.filter(pl.col("policy") == account)]
    ]
    assert dict(same) == {account: account in ("equal_weight", "buy_and_hold") for account, _ in same}


def test_where_no_limit_binds_the_default_pipeline_changes_not_a_bit(plan, run):
    who = build_accounts(plan, run.archives(), {}, {})
    bare = [replace(each, policies=tuple(getattr(one, "_policy", one) for one in each.policies)) for each in who]
    assert [each for each in bare if any(isinstance(one, PipelinedPolicy) for one in each.policies)] == []
    record = backtest(plan.panel, plan.spec.environment, plan.folds, bare)
    for name in TABLES:
        assert getattr(record, name).equals(getattr(run.record, name))


def test_the_default_pipeline_caps_every_name_and_leaves_the_rest_in_cash(capped):
    logs = capped[1].record.action_logs
    own = np.array(logs.filter(pl.col("kind") != "baseline")["target_weights"].to_list())
    assert own[:, :-1].max() == 0.25
    np.testing.assert_allclose(own.sum(axis=1), 1.0, atol=1e-12)
    rules = np.array(logs.filter(pl.col("policy") == "equal_weight")["target_weights"].to_list())
    np.testing.assert_allclose(rules[:, :-1], 1 / 3)


def test_the_mean_of_the_seeds_goes_through_the_pipeline_once(capped):
    plan, store = capped
    who = build_accounts(plan, store.archives(), {}, {})
    first = next(walk(plan.panel, plan.spec.environment, plan.folds, who))
    *seeds, own = [decision.pipeline for decision in first.decisions if decision.pipeline is not None]
    proposed = np.mean([each.stages[0].weights for each in seeds], axis=0)
    np.testing.assert_array_equal(own.stages[0].weights, proposed)
    assert own.weights[:-1].tolist() == np.minimum(proposed[:-1], 0.25).tolist()
    assert own.truncated


def test_a_judged_run_has_the_equity_it_recorded_with_every_timing(timed, judged):
    store = timed[1]
    recorded = store.record.equity_curves.filter(OWN)
    assert judged.curves["equity"].to_numpy().tobytes() == recorded["equity"].to_numpy().tobytes()
    assert judged.actions["target_weights"].equals(store.record.action_logs.filter(OWN)["target_weights"])


def test_the_twin_of_a_judged_run_is_the_account_without_timing(timed, judged, run):
    recorded = run.record.equity_curves.filter(OWN)
    if timed[0].spec.pipeline.timing.kind == "constant":
        assert judged.untimed_curves is None
        assert judged.n_acted == 0
        return
    assert judged.untimed_curves["equity"].to_numpy().tobytes() == recorded["equity"].to_numpy().tobytes()
    assert 0 < judged.n_acted < len(judged.actions)


def test_a_stressed_world_is_traded_with_the_thresholds_of_the_run(timed):
    plan, store = timed

    class Same:
        """The market as it was, as a stressed."""

        panel, blocks = plan.panel, plan.paths.blocks

    who = stressed_accounts(plan, store.archives(), store.seed_weights(), store.thresholds())(Same)
    record = backtest(plan.panel, plan.spec.environment, plan.folds, who)
    assert record.equity_curves.equals(store.record.equity_curves)
