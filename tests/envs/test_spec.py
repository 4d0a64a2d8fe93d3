import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.components.component import content_hash
from nvtrader_pipelines.envs.rewards import CvarExcess, LogGrowth, VolatilityPenalty
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.envs.terminations import DrawdownTermination, MarginCallTermination, StopProperly
from nvtrader_pipelines.portfolio.costs import ProportionalCost, SquareRootImpact, VolatilitySpread, total_cost
from tests.markets import synthetic_panel

RANGES = {
    "lookback": (5, 60),
    "episode_len": (20, 120),
    "rebal_freq": (1, 10),
    "turnover_cost_bps": (0.0, 50.0),
    "vol_penalty": (0.0, 5.0),
}


@pytest.mark.parametrize("knob", RANGES)
def test_a_knob_takes_both_ends_of_its_range_and_nothing_outside(knob):
    low, high = RANGES[knob]
    step = 1 if isinstance(low, int) else 1e-9
    for inside in (low, high):
        assert getattr(EnvSpec.model_validate({knob: inside}), knob) == inside
    for outside in (low - step, high + step, float("nan"), float("inf")):
        with pytest.raises(ValidationError, match=knob):
            EnvSpec.model_validate({knob: outside})


def test_a_knob_that_does_not_exist_is_refused():
    with pytest.raises(ValidationError, match="turnover_cost"):
        EnvSpec.model_validate({"turnover_cost": 10})


def test_the_knob_of_cost_charges_basis_points_of_the_traded_value():
    trades, filled_at = np.array([[0.5, -0.25], [0.0, 0.0]]), np.array([3, 4])
    panel = synthetic_panel(30, 2)
    cost, free = (total_cost(EnvSpec(turnover_cost_bps=bps).cost_models, panel) for bps in (10.0, 0.0))
    np.testing.assert_allclose(cost(trades, filled_at), [0.00075, 0.0])
    assert free(trades, filled_at).tolist() == [0.0, 0.0]


def test_cost_models_come_on_top_of_the_knob():
    models = (VolatilitySpread(), SquareRootImpact())
    assert EnvSpec(turnover_cost_bps=7.0, costs=models).cost_models == (ProportionalCost(bps=7.0), *models)
    assert EnvSpec(turnover_cost_bps=0.0, costs=models).cost_models == models


def test_a_cost_model_is_named_once_and_the_proportional_cost_is_given_once():
    with pytest.raises(ValidationError, match="each model at most once"):
        EnvSpec(costs=(VolatilitySpread(), VolatilitySpread(share=0.1)))
    with pytest.raises(ValidationError, match="given twice: set turnover_cost_bps to 0"):
        EnvSpec(costs=(ProportionalCost(),))
    assert EnvSpec(costs=(ProportionalCost(),), turnover_cost_bps=0.0).costs == (ProportionalCost(),)


def test_the_default_reward_is_growth_less_tail_risk_less_volatility():
    assert [term.kind for term in EnvSpec().reward_terms] == ["log_growth", "cvar_excess", "volatility_penalty"]
    assert EnvSpec(vol_penalty=0.0).reward_terms == (LogGrowth(), CvarExcess())
    assert EnvSpec(vol_penalty=2.0).reward_terms[-1] == VolatilityPenalty(weight=2.0)


@pytest.mark.parametrize("rewards", [(), (LogGrowth(), LogGrowth(weight=2.0))])
def test_rewards_name_each_term_once_and_at_least_one(rewards):
    with pytest.raises(ValidationError, match="each term once and at least one"):
        EnvSpec(rewards=rewards)


def test_the_volatility_penalty_is_given_once():
    terms = (LogGrowth(), VolatilityPenalty())
    with pytest.raises(ValidationError, match="given twice"):
        EnvSpec(rewards=terms, vol_penalty=0.5)
    assert EnvSpec(rewards=terms, vol_penalty=0.0).reward_terms == terms


def test_a_termination_is_named_once():
    with pytest.raises(ValidationError, match="each rule at most once"):
        EnvSpec(terminations=(DrawdownTermination(), DrawdownTermination(limit=0.5)))


@pytest.mark.parametrize("rules", [(), (DrawdownTermination(truncates=False),)])
def test_stop_properly_needs_a_termination_that_truncates(rules):
    with pytest.raises(ValidationError, match="none truncates: add one or set its truncates to true"):
        EnvSpec(terminations=rules, stop_properly=StopProperly())
    both = (*rules, MarginCallTermination())
    assert EnvSpec(terminations=both, stop_properly=StopProperly()).stop_properly == StopProperly()


def test_a_round_trip_through_json_keeps_the_hash():
    spec = EnvSpec(
        lookback=7,
        rewards=(CvarExcess(limit=0.01), LogGrowth()),
        costs=(SquareRootImpact(),),
        terminations=(DrawdownTermination(),),
        stop_properly=StopProperly(form="literal"),
    )
    assert content_hash(EnvSpec.model_validate_json(spec.model_dump_json())) == content_hash(spec)
