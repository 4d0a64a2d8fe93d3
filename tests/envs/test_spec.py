import pytest
from pydantic import ValidationError

from nvtrader_pipelines.components import content_hash
from nvtrader_pipelines.envs.rewards import CvarExcess, LogGrowth, VolatilityPenalty
from nvtrader_pipelines.envs.spec import EnvSpec

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


def test_the_cost_rate_is_a_fraction():
    assert EnvSpec(turnover_cost_bps=10.0).cost_rate == pytest.approx(0.001)


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


def test_a_round_trip_through_json_keeps_the_hash():
    spec = EnvSpec(lookback=7, rewards=(CvarExcess(limit=0.01), LogGrowth()))
    assert content_hash(EnvSpec.model_validate_json(spec.model_dump_json())) == content_hash(spec)
