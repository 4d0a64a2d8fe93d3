from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.evaluation.splits import Holdout, PurgedKFold
from nvtrader_pipelines.evaluation.stress import BootstrappedWindow, FlashCrash, Gap, HistoricWindow
from nvtrader_pipelines.evaluation.stress.scenario import PanelChoice
from nvtrader_pipelines.evaluation.stress.suite import WARM_UP, StressTest, apply_scenarios
from nvtrader_pipelines.evaluation.verdict_tables import STRESS
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.policy_accounts import build_accounts
from nvtrader_pipelines.experiments.stress_run import StressRun, out_of_sample, standard_stress_test, stressed_accounts
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.features import compute_features
from nvtrader_pipelines.market.panel import build_panel
from nvtrader_pipelines.policies.archive import PolicyArchiveError
from nvtrader_pipelines.policies.baselines import EqualWeight, MeanCvar, MinimumVariance
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.turbulence import TurbulenceTiming
from tests.evaluation.stress.markets import BEFORE, random_walks
from tests.experiments.memory import ticking
from tests.experiments.small import EXPERIMENT, archives_of_rule, trained

ROWS = random_walks(3).rows()
WHOLE = PanelChoice(NEW_YORK)
PANEL = build_panel(ROWS, compute_features(ROWS), NEW_YORK)
TEST_FIRST = PANEL.sessions[250].item()
SPEC = EXPERIMENT.model_copy(update={"splitter": Holdout(test_first=TEST_FIRST), "seeds": (0, 1, 5)})
STRESS_TEST = StressTest(
    scenarios=(Gap(), FlashCrash(), BootstrappedWindow(n_worlds=2, n_sessions=63), HistoricWindow()),
    window_sessions=100,
    history_sessions=BEFORE,
)


@pytest.fixture(scope="module")
def run():
    """The plan and store of a small run that was trained."""
    plan = RunPlan.of(SPEC, PANEL)
    return plan, trained(plan)


@pytest.fixture(scope="module")
def progress_and_table(run):
    """Each step of its stress test, and the table."""
    plan, store = run
    contest = stressed_accounts(plan, store.archives(), store.seed_weights(), store.thresholds())
    steps, found = StressRun(plan, ROWS, contest, "task", ticking()).steps(STRESS_TEST), []
    while True:
        try:
            found.append(next(steps))
        except StopIteration as end:
            return found, end.value


def test_table_has_every_seed_ensemble_and_baseline(progress_and_table):
    _, table = progress_and_table
    accounts = ["tiny/seed-0", "tiny/seed-1", "tiny/seed-5", "tiny", "equal_weight", "buy_and_hold"]
    assert table.schema == STRESS
    for rows in table.partition_by("scenario", "statistic"):
        assert rows["policy"].to_list() == accounts
        assert rows["kind"].to_list() == ["policy"] * 3 + ["ensemble"] + ["baseline"] * 2
    played = table.filter(pl.col("n_worlds") > 0)
    assert played["scenario"].n_unique() == 4
    assert played["total_return"].is_finite().all()
    assert table.filter(scenario="historic_2008")["note"].str.contains("the folds test 0 sessions").all()


@pytest.mark.slow
def test_gap_hits_learned_policies_and_baselines(progress_and_table):
    _, table = progress_and_table
    gap, unstressed = (
        table.filter(scenario=name).select("policy", "worst_session") for name in ("gap_20_percent", "unstressed")
    )
    worse = gap.join(unstressed, on="policy", suffix="_unstressed").select(
        pl.col("worst_session") - pl.col("worst_session_unstressed")
    )
    assert (worse["worst_session"] < -0.02).all()


def test_progress_counts_every_market(progress_and_table):
    steps, _ = progress_and_table
    assert [step.stage for step in steps] == ["start", *["evaluate.step"] * 6, "done"]
    shares = [step.share for step in steps]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert steps[1].message.startswith("unstressed: ")
    assert steps[-1].message == "5 stressed markets were played"
    assert steps[-2].message.startswith("historic_2008: not played, the folds test 0 sessions")


@pytest.mark.slow
def test_unstressed_decisions_equal_those_on_the_training_market(run):
    plan, store = run
    unstressed = next(apply_scenarios(ROWS, out_of_sample(plan), STRESS_TEST, WHOLE))
    there = stressed_accounts(plan, store.archives(), store.seed_weights(), store.thresholds())(unstressed)
    here = build_accounts(plan, store.archives(), store.seed_weights(), store.thresholds())
    t = plan.panel.index_of(unstressed.panel.sessions[unstressed.first])
    for one, other in zip(here, there, strict=True):
        was = one.policies[0].decide(plan.panel, t, Accounts(plan.panel, plan.spec.environment, 1, t).account(0))
        now = other.policies[0].decide(
            unstressed.panel, unstressed.first, Accounts(unstressed.panel, plan.spec.environment, 1).account(0)
        )
        np.testing.assert_allclose(now.target, was.target, atol=1e-6)


def test_out_of_sample_lists_test_blocks_and_training_spans(run):
    plan, _ = run
    (part,) = out_of_sample(plan)
    sessions = plan.panel.sessions
    assert (part.fold, part.first) == (0, TEST_FIRST)
    assert part.last == sessions[-1].item()
    assert part.trained == ((sessions[0].item(), sessions[plan.folds[0].train_last].item()),)


@pytest.mark.slow
def test_out_of_sample_of_shared_blocks_lists_every_folds_training():
    spec = SPEC.model_copy(update={"agent": EqualWeight(), "seeds": (0,), "splitter": PurgedKFold(n_folds=3)})
    plan = RunPlan.of(spec, PANEL)
    parts = out_of_sample(plan)
    assert len(parts) == len(plan.paths.blocks) == 3
    for stressed in apply_scenarios(ROWS, parts, STRESS_TEST, WHOLE):
        if hasattr(stressed, "blocks"):
            who = stressed_accounts(plan, archives_of_rule(plan), {}, {})(stressed)
            assert {len(each.policies) for each in who} == {len(stressed.blocks)} == {1}
    last = parts[-1]
    assert all(end < last.first for _, end in last.trained)


def test_archives_of_another_market_raise(run):
    plan, store = run
    unstressed = next(apply_scenarios(ROWS, out_of_sample(plan), STRESS_TEST, WHOLE))
    other = replace(plan, panel_digest="0" * 64)
    with pytest.raises(PolicyArchiveError):
        stressed_accounts(other, store.archives(), store.seed_weights(), store.thresholds())(unstressed)


def test_names_other_than_trained_on_raise(run):
    plan, store = run
    unstressed = next(apply_scenarios(ROWS, out_of_sample(plan), STRESS_TEST, PanelChoice(NEW_YORK, ("AAA", "BBB"))))
    with pytest.raises(PolicyArchiveError):
        stressed_accounts(plan, store.archives(), store.seed_weights(), store.thresholds())(unstressed)


@pytest.mark.parametrize(
    ("rules", "n_sessions"),
    [((EqualWeight(), MeanCvar()), 1512), ((MinimumVariance(history=2000), MeanCvar(history=100)), 2273)],
)
def test_stress_history_covers_the_look_back_of_rules(rules, n_sessions):
    spec = SPEC.model_copy(update={"baselines": rules})
    assert standard_stress_test(spec).history_sessions == n_sessions


def test_stress_history_covers_the_look_back_of_the_pipeline():
    pipeline = WeightPipeline(timing=TurbulenceTiming(history=1900, cooldown=9))
    spec = SPEC.model_copy(update={"pipeline": pipeline})
    assert standard_stress_test(spec).history_sessions == 1910 + WARM_UP
