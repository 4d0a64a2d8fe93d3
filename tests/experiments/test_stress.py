from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.evaluation.splits import Holdout, PurgedKFold
from nvtrader_pipelines.evaluation.stress import BlockBootstrap, CostTimes, Gap, HistoricWindow
from nvtrader_pipelines.evaluation.stress.scenarios import WARM_UP, StressTest, stressed_worlds
from nvtrader_pipelines.evaluation.verdict_tables import STRESS
from nvtrader_pipelines.experiments.accounts import contestants
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.stress import StressRun, contest_of, out_of_sample, standard_stress_test
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
PANEL = build_panel(ROWS, compute_features(ROWS))
TEST_FIRST = PANEL.sessions[250].item()
SPEC = EXPERIMENT.model_copy(update={"splitter": Holdout(test_first=TEST_FIRST), "seeds": (0, 1, 5)})
STRESS_TEST = StressTest(
    scenarios=(Gap(), CostTimes(), BlockBootstrap(n_worlds=2, n_sessions=63), HistoricWindow()),
    window_sessions=100,
    history_sessions=BEFORE,
)


@pytest.fixture(scope="module")
def run():
    """The plan and store of a small run that was trained."""
    plan = RunPlan.of(SPEC, PANEL)
    return plan, trained(plan)


@pytest.fixture(scope="module")
def told(run):
    """Each step of its stress test, and the table."""
    plan, store = run
    contest = contest_of(plan, store.archives(), store.chosen(), store.thresholds())
    steps, found = StressRun(plan, ROWS, contest, "task", ticking()).steps(STRESS_TEST), []
    while True:
        try:
            found.append(next(steps))
        except StopIteration as end:
            return found, end.value


def test_every_seed_the_ensemble_and_every_baseline_are_in_one_table(told):
    _, table = told
    accounts = ["tiny/seed-0", "tiny/seed-1", "tiny/seed-5", "tiny", "equal_weight", "buy_and_hold"]
    assert table.schema == STRESS
    for rows in table.partition_by("scenario", "statistic"):
        assert rows["policy"].to_list() == accounts
        assert rows["kind"].to_list() == ["policy"] * 3 + ["ensemble"] + ["baseline"] * 2
    played = table.filter(pl.col("n_worlds") > 0)
    assert played["scenario"].n_unique() == 4
    assert played["total_return"].is_finite().all()
    assert table.filter(scenario="historic_2008")["note"].str.contains("the folds test 0 sessions").all()


def test_a_gap_is_seen_by_what_learned_and_what_did_not(told):
    _, table = told
    gap, calm = (table.filter(scenario=name).select("policy", "worst_session") for name in ("gap_20_percent", "calm"))
    worse = gap.join(calm, on="policy", suffix="_calm").select(pl.col("worst_session") - pl.col("worst_session_calm"))
    assert (worse["worst_session"] < -0.02).all()


def test_each_world_is_told_with_its_share_of_all(told):
    steps, _ = told
    assert [step.stage for step in steps] == ["start", *["evaluate.step"] * 6, "done"]
    shares = [step.share for step in steps]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert steps[1].message.startswith("calm: ")
    assert steps[-1].message == "5 stressed worlds were played"
    assert steps[-2].message.startswith("historic_2008: not played, the folds test 0 sessions")


def test_in_the_calm_world_learned_policies_decide_as_on_the_market_they_were_trained_on(run):
    plan, store = run
    calm = next(stressed_worlds(ROWS, out_of_sample(plan), STRESS_TEST))
    there = contest_of(plan, store.archives(), store.chosen(), store.thresholds())(calm)
    here = contestants(plan, store.archives(), store.chosen(), store.thresholds())
    t = plan.panel.index_of(calm.panel.sessions[calm.first])
    for one, other in zip(here, there, strict=True):
        was = one.by_fold[0].decide(plan.panel, t, Accounts(plan.panel, plan.spec.environment, 1, t).account(0))
        now = other.by_fold[0].decide(calm.panel, calm.first, Accounts(calm.panel, plan.spec.environment, 1).account(0))
        np.testing.assert_allclose(now.target, was.target, atol=1e-6)


def test_what_may_be_judged_are_the_tests_and_what_was_trained_on_is_told(run):
    plan, _ = run
    (part,) = out_of_sample(plan)
    sessions = plan.panel.sessions
    assert (part.fold, part.first) == (0, TEST_FIRST)
    assert part.last == sessions[-1].item()
    assert part.trained == ((sessions[0].item(), sessions[plan.folds[0].train_last].item()),)


def test_where_several_folds_test_a_block_all_of_them_are_known_to_be_trained_on_the_rest():
    spec = SPEC.model_copy(update={"agent": EqualWeight(), "seeds": (0,), "splitter": PurgedKFold(n_folds=3)})
    plan = RunPlan.of(spec, PANEL)
    parts = out_of_sample(plan)
    assert len(parts) == len(plan.paths.blocks) == 3
    for world in stressed_worlds(ROWS, parts, STRESS_TEST):
        if hasattr(world, "blocks"):
            who = contest_of(plan, archives_of_rule(plan), {}, {})(world)
            assert {len(each.by_fold) for each in who} == {len(world.blocks)} == {1}
    last = parts[-1]
    assert all(end < last.first for _, end in last.trained)


def test_archives_of_another_market_are_refused(run):
    plan, store = run
    calm = next(stressed_worlds(ROWS, out_of_sample(plan), STRESS_TEST))
    other = replace(plan, panel_digest="0" * 64)
    with pytest.raises(PolicyArchiveError, match="train the experiment again"):
        contest_of(other, store.archives(), store.chosen(), store.thresholds())(calm)


def test_other_names_than_those_trained_on_are_refused(run):
    plan, store = run
    calm = next(stressed_worlds(ROWS, out_of_sample(plan), STRESS_TEST, symbols=("AAA", "BBB")))
    with pytest.raises(PolicyArchiveError, match="trained on 3 symbols"):
        contest_of(plan, store.archives(), store.chosen(), store.thresholds())(calm)


@pytest.mark.parametrize(
    ("rules", "n_sessions"),
    [((EqualWeight(), MeanCvar()), 1512), ((MinimumVariance(history=2000), MeanCvar(history=100)), 2273)],
)
def test_worlds_have_as_much_history_as_the_rules_look_back_on(rules, n_sessions):
    spec = SPEC.model_copy(update={"baselines": rules})
    assert standard_stress_test(spec).history_sessions == n_sessions


def test_worlds_have_as_much_history_as_the_pipeline_looks_back_on():
    pipeline = WeightPipeline(timing=TurbulenceTiming(history=1900, cooldown=9))
    spec = SPEC.model_copy(update={"pipeline": pipeline})
    assert standard_stress_test(spec).history_sessions == 1910 + WARM_UP
