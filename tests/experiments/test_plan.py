import dataclasses
import datetime as dt

import pytest

from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.envs.rewards import DpDistillation, Hindsight, LogGrowth
from nvtrader_pipelines.evaluation.splits import CombinatorialPurged, PurgedKFold
from nvtrader_pipelines.experiments.designs import AblationDesign, BasicDesign, BestOfNDesign
from nvtrader_pipelines.experiments.plan import LOOKS_AHEAD, SURVIVORSHIP, policy_card, short_history_warnings
from nvtrader_pipelines.experiments.plan_kinds import VALIDATION_ONLY
from nvtrader_pipelines.experiments.recorded_folds import FoldDates, Parent, fold_dates, recorded_fold_numbers
from nvtrader_pipelines.experiments.replay import forward_plan, replay_plan
from nvtrader_pipelines.policies.agents import ArsAgent, Fit, InvestorImitatorAgent, PpoAgent
from nvtrader_pipelines.policies.baselines import AnchorPortfolio, Cufolio, EqualWeight, MeanCvar, MinimumVariance
from nvtrader_pipelines.portfolio.anchors import EqualWeightAnchor
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.allocators import MinimumVarianceAllocator
from nvtrader_pipelines.portfolio.pipeline.regime_guard import RegimeGuard
from nvtrader_pipelines.portfolio.pipeline.selectors import Liquidity
from nvtrader_pipelines.portfolio.pipeline.turbulence import TurbulenceTiming
from tests.experiments.small import EXPERIMENT, planned
from tests.markets import synthetic_panel
from tests.policies.small_learners import SPEC


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
    assert fills == "orders fill at the next_close, not the next_open of the spec: the market has no opens"
    cheating = EXPERIMENT.model_copy(update={"environment": SPEC.model_copy(update={"fill": "same_close"})})
    assert "cheat-on-close" in planned(cheating).warnings[0]
    for bps, n_warnings in ((50.0, 0), (80.0, 1)):
        costly = EXPERIMENT.model_copy(update={"environment": SPEC.model_copy(update={"turnover_cost_bps": bps})})
        assert len(planned(costly).warnings) == n_warnings


def rewarded(*terms):
    return EXPERIMENT.model_copy(update={"environment": SPEC.model_copy(update={"rewards": terms})})


def test_card_warns_of_rewards_that_look_ahead():
    plan = planned(rewarded(LogGrowth(), Hindsight(), DpDistillation()))
    card = policy_card(plan, plan.task(plan.keys[0]), Fit({}, ObservationScaler(), []))
    assert card.warnings == (LOOKS_AHEAD.format(kinds="hindsight and dp_distillation"),)


@pytest.mark.parametrize("agent", [ArsAgent(), InvestorImitatorAgent(), PpoAgent()], ids=lambda agent: agent.kind)
def test_card_warns_of_an_agent_without_a_critic(agent):
    warnings = planned(EXPERIMENT.model_copy(update={"agent": agent})).warnings
    assert warnings == (() if agent.has_critic else (agent.caveat,))


def test_horizon_beyond_the_shortest_training_is_refused():
    n_sessions = min(fold.train_last - fold.train_first + 1 for fold in planned().folds)
    planned(rewarded(Hindsight(horizon=n_sessions - 1)))
    with pytest.raises(ValueError, match=str(n_sessions)):
        planned(rewarded(Hindsight(horizon=n_sessions)))


def test_plan_warns_of_rules_without_history_before_the_first_test():
    rules = (EqualWeight(), MinimumVariance(history=200), MeanCvar(history=504))
    plan = planned(EXPERIMENT.model_copy(update={"baselines": rules}))
    first = plan.folds[0].test_first
    assert 200 <= first < 504
    (warning,) = short_history_warnings(plan)
    assert warning.startswith(f"mean_cvar needs 504 sessions for an estimate (reached: {plan.panel.sessions[503]})")
    assert warning in plan.warnings


def test_the_window_of_a_run_is_that_of_its_tests(plan):
    first, last = plan.window
    assert isinstance(first, dt.date)
    assert (first, last) == tuple(
        plan.panel.sessions[i].item() for i in (plan.folds[0].test_first, plan.folds[1].test_last)
    )


def test_a_task_is_one_fold_and_seed_on_the_folds_training_window(plan):
    task = plan.task((1, 5), b"state")
    fold = plan.folds[1]
    assert (task.fold, task.seed, task.window) == (1, 5, (fold.train_first, fold.train_last))
    assert (task.sample_rate, task.resume_from) == (EXPERIMENT.training_sample_rate, b"state")


def test_holding_out_every_training_session_is_refused():
    greedy = planned(EXPERIMENT.model_copy(update={"design": BestOfNDesign(validation_sessions=252)}))
    with pytest.raises(ValueError):
        greedy.task(greedy.keys[0])


def test_an_ablation_is_refused_with_the_names_of_its_variants():
    ablation = EXPERIMENT.model_copy(update={"design": AblationDesign(field="agent.gamma", values=(0.8, 0.9))})
    with pytest.raises(ValueError, match="tiny-gamma-0-8, tiny-gamma-0-9"):
        planned(ablation)


KFOLD = EXPERIMENT.model_copy(update={"splitter": PurgedKFold(n_folds=3)})
COMBINED = EXPERIMENT.model_copy(update={"splitter": CombinatorialPurged(n_folds=4)})
EITHER = pytest.mark.parametrize("spec", [KFOLD, COMBINED], ids=lambda spec: spec.splitter.kind)


def test_plan_rejects_market_that_lacks_pipeline_data():
    liquid = EXPERIMENT.model_copy(update={"pipeline": WeightPipeline(selector=Liquidity())})
    assert planned(liquid).folds
    with pytest.raises(ValueError):
        planned(liquid, synthetic_panel(700, 3, volume=False))


@pytest.mark.parametrize("field", ["agent", "baselines"])
def test_plan_refuses_rule_whose_caps_leave_more_cash_than_its_ceiling(field):
    rule = Cufolio(max_position_pct=0.2, cash_ceiling=0.1)
    spec = EXPERIMENT.model_copy(update={"agent": rule} if field == "agent" else {"baselines": (rule,)})
    with pytest.raises(ValueError):
        planned(spec, synthetic_panel(700, 3))


def test_a_task_has_the_pipeline_only_where_the_environment_trains_through_it(plan):
    through = EXPERIMENT.model_copy(update={"environment": SPEC.model_copy(update={"pipeline": True})})
    assert planned(through).task((0, 0)).pipeline == through.pipeline
    assert plan.task((0, 0)).pipeline is None


def test_a_task_of_a_fold_with_several_stretches_has_them_all():
    folded = planned(KFOLD)
    assert folded.task((0, 0)).window == (folded.folds[0].train_first, folded.folds[0].train_last)
    assert folded.task((1, 0)).window == folded.folds[1].train
    assert len(folded.folds[1].train) == 2


def test_purged_kfold_has_one_path_combinatorial_purged_several():
    folded, combined = planned(KFOLD), planned(COMBINED)
    assert folded.deciding == (folded.folds,)
    assert [len(path) for path in combined.deciding] == [4, 4, 4]
    assert {block.index for block in combined.paths.blocks} == {0, 1, 2, 3}
    assert folded.window == combined.window == tuple(folded.panel.sessions[i].item() for i in (1, -1))


@EITHER
def test_a_run_that_trains_on_both_sides_of_its_tests_says_so(spec):
    assert planned(spec).warnings[0] == VALIDATION_ONLY
    assert planned(spec.model_copy(update={"design": BasicDesign()})).warnings == ()  # tests the last sessions alone


@pytest.mark.parametrize(
    ("sizes", "said"), [((6, 21), "27 of 252"), ((6, 245), "251 of 252"), ((6, 246), ""), ((126, 126), "")]
)
def test_a_run_whose_inputs_reach_back_into_its_tests_says_so(sizes, said):
    splitter = PurgedKFold(n_folds=2, purge_size=sizes[0], embargo_size=sizes[1])
    _, *others = planned(EXPERIMENT.model_copy(update={"splitter": splitter})).warnings
    assert [said in warning for warning in others] == ([True] if said else [])


@pytest.mark.parametrize(
    ("timing", "embargo", "said"),
    [
        (RegimeGuard(), 392, "398 of 399"),
        (RegimeGuard(), 393, ""),
        (RegimeGuard(max_drawdown=0.1, min_trailing_return=-0.1, max_turnover=0.1), 246, ""),
        (TurbulenceTiming(threshold=None, history=400), 246, ""),  # is fitted on what looks back into no test
    ],
)
def test_plan_warns_where_account_timing_looks_back_into_tests(timing, embargo, said):
    allocator = MinimumVarianceAllocator(history=400, estimate_every=1)
    splitter = PurgedKFold(n_folds=2, purge_size=6, embargo_size=embargo)
    changes = {"splitter": splitter, "pipeline": WeightPipeline(allocator=allocator, timing=timing)}
    _, *others = planned(EXPERIMENT.model_copy(update=changes), synthetic_panel(1400, 3)).warnings
    assert [said in warning for warning in others] == ([True] if said else [])


@EITHER
def test_the_dates_of_its_folds_are_those_of_its_plan_again(spec):
    run = planned(spec)
    days = [day.item().toordinal() for day in run.panel.sessions]
    for fold, dates in zip(run.folds, fold_dates(run), strict=True):
        assert FoldDates.model_validate_json(dates.model_dump_json()) == dates
        parts = [(days[first], days[last]) for first, last in (*fold.train, *fold.test)]
        assert parts == [*dates.in_days.train, *dates.in_days.test]


def test_recorded_fold_numbers_are_folds_or_shared_blocks(plan):
    assert recorded_fold_numbers(fold_dates(plan)) == {0: (0,), 1: (1,)}
    assert recorded_fold_numbers(fold_dates(planned(KFOLD))) == {0: (0,), 1: (1,), 2: (2,)}
    tested = {0: (0, 1), 1: (0, 2), 2: (0, 3), 3: (1, 2), 4: (1, 3), 5: (2, 3)}
    assert recorded_fold_numbers(fold_dates(planned(COMBINED))) == tested
    assert "train" not in fold_dates(plan)[0].model_dump_json().replace("train_", "")


@EITHER
@pytest.mark.parametrize("again", [replay_plan, forward_plan])
def test_validation_only_policies_cannot_be_replayed(spec, again):
    run = planned(spec)
    with pytest.raises(ValueError):
        again(spec, run.panel, Parent(run.run_id, fold_dates(run)))


@pytest.mark.parametrize(("anchor", "n_notes"), [(EqualWeightAnchor(), 1), (ResidualAction().anchor, 0)])
def test_other_anchor_among_the_baselines_is_a_warning(anchor, n_notes):
    environment = EXPERIMENT.environment.model_copy(update={"action": ResidualAction()})
    baselines = (EqualWeight(), AnchorPortfolio(anchor=anchor))
    plan = planned(EXPERIMENT.model_copy(update={"environment": environment, "baselines": baselines}))
    assert sum("drop it there" in warning for warning in plan.warnings) == n_notes
