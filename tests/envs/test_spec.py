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
    "turnover_cost_bps": (0.0, 500.0),
    "vol_penalty": (0.0, 5.0),
}


@pytest.mark.parametrize("knob", RANGES)
def test_parameter_range_includes_both_ends(knob):
    low, high = RANGES[knob]
    step = 1 if isinstance(low, int) else 1e-9
    for inside in (low, high):
        assert getattr(EnvSpec.model_validate({knob: inside}), knob) == inside
    for outside in (low - step, high + step, float("nan"), float("inf")):
        with pytest.raises(ValidationError):
            EnvSpec.model_validate({knob: outside})


def test_unknown_parameter_is_refused():
    with pytest.raises(ValidationError):
        EnvSpec.model_validate({"turnover_cost": 10})


def test_turnover_cost_bps_charges_bps_of_the_traded_value():
    trades, filled_at = np.array([[0.5, -0.25], [0.0, 0.0]]), np.array([3, 4])
    panel = synthetic_panel(30, 2)
    cost, free = (total_cost(EnvSpec(turnover_cost_bps=bps).cost_models, panel) for bps in (10.0, 0.0))
    np.testing.assert_allclose(cost(trades, filled_at), [0.00075, 0.0])
    assert free(trades, filled_at).tolist() == [0.0, 0.0]


def test_cost_models_add_to_turnover_cost_bps():
    models = (VolatilitySpread(), SquareRootImpact())
    assert EnvSpec(turnover_cost_bps=7.0, costs=models).cost_models == (ProportionalCost(bps=7.0), *models)
    assert EnvSpec(turnover_cost_bps=0.0, costs=models).cost_models == models


def test_repeated_cost_model_is_refused():
    with pytest.raises(ValidationError):
        EnvSpec(costs=(VolatilitySpread(), VolatilitySpread(share=0.1)))
    with pytest.raises(ValidationError):
        EnvSpec(costs=(ProportionalCost(),))
    assert EnvSpec(costs=(ProportionalCost(),), turnover_cost_bps=0.0).costs == (ProportionalCost(),)


def test_default_reward_is_growth_less_tail_risk_and_volatility():
    assert [term.kind for term in EnvSpec().reward_terms] == ["log_growth", "cvar_excess", "volatility_penalty"]
    assert EnvSpec(vol_penalty=0.0).reward_terms == (LogGrowth(), CvarExcess())
    assert EnvSpec(vol_penalty=2.0).reward_terms[-1] == VolatilityPenalty(weight=2.0)


@pytest.mark.parametrize("rewards", [(), (LogGrowth(), LogGrowth(weight=2.0))])
def test_repeated_or_missing_reward_terms_are_refused(rewards):
    with pytest.raises(ValidationError):
        EnvSpec(rewards=rewards)


def test_repeated_volatility_penalty_is_refused():
    terms = (LogGrowth(), VolatilityPenalty())
    with pytest.raises(ValidationError):
        EnvSpec(rewards=terms, vol_penalty=0.5)
    assert EnvSpec(rewards=terms, vol_penalty=0.0).reward_terms == terms


def test_repeated_termination_is_refused():
    with pytest.raises(ValidationError):
        EnvSpec(terminations=(DrawdownTermination(), DrawdownTermination(limit=0.5)))


@pytest.mark.parametrize("rules", [(), (DrawdownTermination(truncates=False),)])
def test_stop_properly_without_truncating_rule_is_refused(rules):
    with pytest.raises(ValidationError):
        EnvSpec(terminations=rules, stop_properly=StopProperly())
    both = (*rules, MarginCallTermination())
    assert EnvSpec(terminations=both, stop_properly=StopProperly()).stop_properly == StopProperly()


def test_spec_survives_json_with_its_hash():
    spec = EnvSpec(
        lookback=7,
        rewards=(CvarExcess(limit=0.01), LogGrowth()),
        costs=(SquareRootImpact(),),
        terminations=(DrawdownTermination(),),
        stop_properly=StopProperly(form="literal"),
    )
    assert content_hash(EnvSpec.model_validate_json(spec.model_dump_json())) == content_hash(spec)
