import numpy as np
import pytest

from nvtrader_pipelines.research.knobs import KNOBS, SearchMode
from nvtrader_pipelines.research.proposal_bounds import BoundsClip, ConfigDelta, DeltaRefused

BOUNDS = {  # of the source document
    "lookback": (5, 60),
    "episode_len": (20, 120),
    "rebal_freq": (1, 10),
    "turnover_cost_bps": (0.0, 50.0),
    "vol_penalty": (0.0, 5.0),
    "learning_rate": (1e-5, 1e-2),
    "n_steps": (64, 4096),
    "batch_size": (32, 512),
    "gae_lambda": (0.85, 0.99),
    "gamma": (0.90, 0.999),
    "ent_coef": (0.0, 0.10),
    "n_epochs": (3, 30),
    "cvar_alpha": (0.85, 0.99),
    "max_position_pct": (0.02, 0.30),
    "n_scenarios": (1_000, 10_000),
    "cufolio_hold_days": (5, 60),
}
UNIFIED = KNOBS[SearchMode.UNIFIED]
BY_NAME = {knob.name: knob for knob in UNIFIED}


def parse(proposal, mode=SearchMode.UNIFIED):
    return ConfigDelta.parse(proposal, KNOBS[mode])


def test_unified_mode_has_the_sources_16_knobs_and_bounds():
    assert {knob.name: (knob.low, knob.high) for knob in UNIFIED} == BOUNDS
    assert {knob.name for knob in UNIFIED if knob.is_whole} == {
        name for name, (low, _) in BOUNDS.items() if isinstance(low, int)
    }
    assert [knob.name for knob in UNIFIED if knob.is_log] == ["learning_rate"]


@pytest.mark.parametrize(("mode", "n_knobs"), [("ppo_only", 12), ("cufolio_only", 4), ("unified", 16)])
def test_modes_have_the_groups_of_the_source(mode, n_knobs):
    assert len(KNOBS[SearchMode(mode)]) == n_knobs


@pytest.mark.parametrize("name", BOUNDS)
def test_value_at_a_bound_is_used_as_it_is(name):
    for bound in BOUNDS[name]:
        delta = parse({name: float(bound)})
        assert (dict(delta.values), delta.clips) == ({name: bound}, ())
        assert type(delta.values[name]) is type(bound)


@pytest.mark.parametrize("name", BOUNDS)
def test_value_beyond_a_bound_is_clipped_and_reported(name):
    low, high = BOUNDS[name]
    for proposed, used in ((low - 1, low), (high + 1, high), (10**400, high)):
        delta = parse({name: proposed})
        assert dict(delta.values) == {name: used}
        assert delta.clips == (BoundsClip(knob=name, proposed=proposed, used=used),)


@pytest.mark.parametrize("value", [64.5, "64", True, None, [64], float("nan"), float("inf"), np.bool_(1)])
def test_wrong_value_of_a_whole_knob_is_refused(value):
    with pytest.raises(DeltaRefused) as refusal:
        parse({"n_steps": value}, SearchMode.PPO_ONLY)
    assert refusal.value.knobs == tuple(knob.name for knob in KNOBS[SearchMode.PPO_ONLY])
    assert all(name in str(refusal.value) for name in refusal.value.knobs)


@pytest.mark.parametrize("value", [np.int64(64), np.float64(64.0), np.float32(64.0)])
def test_numpy_number_is_taken_as_a_python_integer(value):
    assert type(parse({"n_steps": value}).values["n_steps"]) is int


@pytest.mark.parametrize("value", ["0.95", True, None, float("nan"), float("-inf"), 1j])
def test_wrong_value_of_a_real_knob_is_refused(value):
    with pytest.raises(DeltaRefused):
        parse({"gamma": value})


def test_unknown_knob_is_refused_with_the_nearest_name():
    with pytest.raises(DeltaRefused, match="'lookback'"):
        parse({"lookbak": 10})


def test_knob_of_another_mode_is_refused_with_its_modes():
    with pytest.raises(DeltaRefused) as refusal:
        parse({"cvar_alpha": 0.9}, SearchMode.PPO_ONLY)
    assert "cufolio_only and unified" in refusal.value.problem
    assert "cvar_alpha" not in refusal.value.knobs


@pytest.mark.parametrize("proposal", [None, [("gamma", 0.95)], "gamma", {1: 2}])
def test_proposal_that_maps_no_knobs_is_refused(proposal):
    with pytest.raises(DeltaRefused):
        parse(proposal)


def test_delta_cannot_be_changed():
    with pytest.raises(TypeError):
        parse({"gamma": 0.95}).values["gamma"] = 1.0
