import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.research.knobs import KNOBS, SearchMode
from nvtrader_pipelines.research.proposal_bounds import BoundsClip, ConfigDelta, DeltaRefused, Snapped
from nvtrader_pipelines.research.space import configuration_hash, search_space

SPACES = {mode: search_space(mode) for mode in SearchMode}
PPO, UNIFIED = SPACES[SearchMode.PPO_ONLY], SPACES[SearchMode.UNIFIED]
NAMES = [*(knob.name for knob in KNOBS[SearchMode.UNIFIED]), "sharpe", "clip_range"]
NUMBERS = st.one_of(
    st.integers(-10, 20_000), st.integers(), st.floats(-1.0, 600.0), st.floats(allow_nan=False, allow_infinity=False)
)


def ppo_like(**changes):
    return ExperimentSpec.model_validate({"name": "base", **changes})


@given(mode=st.sampled_from(SearchMode), proposal=st.dictionaries(st.sampled_from(NAMES), NUMBERS))
def test_finite_numbers_give_a_valid_experiment_or_are_refused(mode, proposal):
    space = SPACES[mode]
    wholes = {knob.name: knob.is_whole for knob in space.knobs}
    if any(name not in wholes or (wholes[name] and value != int(value)) for name, value in proposal.items()):
        with pytest.raises(DeltaRefused) as refusal:
            space.propose(proposal)
        assert refusal.value.knobs == tuple(wholes)
        return
    found = space.propose(proposal)
    document = found.spec.model_dump(mode="json")
    assert ExperimentSpec.model_validate(document) == found.spec
    assert all(knob.low <= found.trial.knobs[knob.name] <= knob.high for knob in space.knobs)
    agent = document["agent"]
    if mode != SearchMode.CUFOLIO_ONLY:
        assert agent["n_envs"] * agent["n_steps"] == found.trial.knobs["n_steps"]
        assert found.trial.knobs["n_steps"] % agent["batch_size"] == 0


@given(n_steps=st.integers(64, 4096), batch_size=st.integers(32, 512))
def test_rollout_and_batch_are_snapped_to_the_next_that_fit(n_steps, batch_size):
    found = PPO.propose({"n_steps": n_steps, "batch_size": batch_size})
    rollout, agent = n_steps - n_steps % 32, found.spec.agent
    size = max(each for each in range(1, min(batch_size, rollout) + 1) if rollout % each == 0)
    assert (agent.n_envs * agent.n_steps, agent.batch_size) == (rollout, size)
    assert agent.n_steps >= 8
    steps = [Snapped(knob="n_steps", proposed=n_steps, used=rollout)] if rollout != n_steps else []
    batch = [Snapped(knob="batch_size", proposed=batch_size, used=size)] if size != batch_size else []
    assert sorted(found.snaps, key=repr) == sorted([*steps, *batch], key=repr)


@pytest.mark.parametrize(
    ("n_steps", "portfolios"), [(64, (8, 8)), (96, (8, 12)), (256, (32, 8)), (1024, (64, 16)), (4096, (64, 64))]
)
def test_rollout_is_split_over_portfolios(n_steps, portfolios):
    agent = PPO.propose({"n_steps": n_steps}).spec.agent
    assert (agent.n_envs, agent.n_steps) == portfolios


def test_delta_sets_the_fields_of_all_three_groups():
    found = UNIFIED.propose({"vol_penalty": 2, "gamma": 0.95, "cvar_alpha": 0.9})
    assert found.spec.environment.vol_penalty == 2.0
    assert found.spec.agent.gamma == 0.95
    assert found.spec.pipeline.allocator.cvar_alpha == 0.9
    assert SPACES[SearchMode.CUFOLIO_ONLY].propose({"cvar_alpha": 0.9}).spec.agent.cvar_alpha == 0.9


@pytest.mark.parametrize("mode", SearchMode)
def test_empty_delta_gives_the_base(mode):
    space = SPACES[mode]
    found = space.apply(ConfigDelta())
    assert found.spec == space.base
    assert (found.trial.knobs, found.snaps) == (space.base_values, ())


def test_default_base_is_shipped_ppo_at_the_nearest_bounds():
    assert PPO.base_clips == (BoundsClip(knob="n_epochs", proposed=1, used=3),)
    agent = PPO.base.agent
    assert (agent.n_envs, agent.n_steps, agent.batch_size, agent.n_epochs) == (64, 16, 256, 3)
    assert PPO.base.environment.action.kind == "simplex"


def test_base_out_of_bounds_is_clipped_and_reported():
    agent = {"kind": "ppo", "n_envs": 256, "n_steps": 26, "batch_size": 3328, "gamma": 0.5, "n_epochs": 6}
    space = search_space(SearchMode.PPO_ONLY, ppo_like(agent=agent))
    assert space.base_clips == (
        BoundsClip(knob="n_steps", proposed=6656, used=4096),
        BoundsClip(knob="batch_size", proposed=3328, used=512),
        BoundsClip(knob="gamma", proposed=0.5, used=0.9),
    )
    assert (space.base.agent.n_envs, space.base.agent.n_steps) == (64, 64)
    assert len(space.notices) == 1  # of the split


@pytest.mark.parametrize(("limit", "high"), [(0.1, 0.1), (0.25, 0.25), (0.5, 0.3)])
def test_position_is_searched_up_to_the_risk_limit(limit, high):
    base = ppo_like(pipeline={"risk_limits": {"max_position": limit}})
    space = search_space(SearchMode.UNIFIED, base)
    assert {knob.name: knob.high for knob in space.knobs}["max_position_pct"] == high
    assert space.propose({"max_position_pct": 1.0}).spec.pipeline.allocator.max_position_pct == high
    assert sum("max_position" in notice for notice in space.notices) == (high < 0.3)


def test_risk_limit_at_the_least_position_is_refused():
    with pytest.raises(ValueError):
        search_space(SearchMode.UNIFIED, ppo_like(pipeline={"risk_limits": {"max_position": 0.02}}))


@pytest.mark.parametrize(
    ("mode", "changes"),
    [
        (SearchMode.PPO_ONLY, {"agent": {"kind": "equal_weight"}}),
        (SearchMode.PPO_ONLY, {"agent": {"kind": "a2c"}}),
        (SearchMode.CUFOLIO_ONLY, {}),
        (SearchMode.PPO_ONLY, {"design": {"kind": "ablation"}}),
    ],
)
def test_base_without_the_modes_knobs_is_refused(mode, changes):
    with pytest.raises(ValueError):
        search_space(mode, ppo_like(**changes))


def test_values_that_the_experiment_refuses_are_refused():
    base = ppo_like(splitter={"kind": "purged_kfold", "purge_size": 5})
    with pytest.raises(DeltaRefused) as refusal:
        search_space(SearchMode.PPO_ONLY, base).propose({"rebal_freq": 10})
    assert "purge_size" in refusal.value.problem


def test_equal_effective_settings_have_equal_hashes():
    deltas = ({"n_epochs": 1, "ent_coef": 0}, {"n_epochs": 3.0, "ent_coef": -0.0}, {}, {"batch_size": 300})
    assert len({PPO.propose(delta).trial.trial_hash for delta in deltas}) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other", "description": "words", "report_from": "2012-01-03", "seeds": [7, 8, 9]},
        {"splitter": {"kind": "holdout", "test_first": "2012-01-03"}, "baselines": [{"kind": "equal_weight"}]},
        {"agent": {"kind": "ppo", "gamma": 0.95, "n_epochs": 5}, "environment": {"lookback": 50}},
        {"pipeline": {"allocator": {"kind": "cufolio", "cvar_alpha": 0.9}}},
    ],
    ids=["name", "judgement", "own values", "allocator"],
)
def test_configuration_reached_from_another_base_has_the_same_hash(changes):
    proposal = {knob.name: knob.low for knob in UNIFIED.knobs}
    spaces = [search_space(SearchMode.UNIFIED, base) for base in (ppo_like(), ppo_like(**changes))]
    assert len({space.propose(proposal).trial.trial_hash for space in spaces}) == 1


def test_configuration_reached_in_another_mode_has_the_same_hash():
    narrow = search_space(SearchMode.PPO_ONLY, UNIFIED.base)
    trials = [space.propose({"gamma": 0.95}).trial for space in (narrow, UNIFIED)]
    assert trials[0].trial_hash == trials[1].trial_hash
    assert trials[0].knobs != trials[1].knobs


@pytest.mark.parametrize(
    "changes",
    [
        {"market": {"symbols": ["AAPL", "KO"]}},
        {"environment": {"fill": "next_close"}},
        {"agent": {"kind": "ppo", "total_timesteps": 4096}},
        {"pipeline": {"timing": {"kind": "volatility_target"}}},
    ],
    ids=["market", "environment", "agent", "pipeline"],
)
def test_configuration_with_another_deciding_part_has_another_hash(changes):
    assert configuration_hash(ppo_like(**changes)) != configuration_hash(ppo_like())


def test_refused_values_have_a_hash_of_their_own():
    hashes = {configuration_hash(ppo_like(), refused) for refused in (None, {"gamma": 0.9}, {"gamma": 0.95})}
    assert len(hashes) == 3
    assert configuration_hash(ppo_like(name="other"), {"gamma": 0.9}) in hashes


@pytest.mark.parametrize("kind", ["basic", "best_of_n"])
def test_trials_train_on_whole_folds_whatever_the_design_of_the_base(kind):
    assert search_space(SearchMode.PPO_ONLY, ppo_like(design={"kind": kind})).base.design.kind == "walk_forward"


def test_other_values_base_or_mode_have_other_hashes():
    short = search_space(SearchMode.PPO_ONLY, ppo_like(agent={"kind": "ppo", "total_timesteps": 4096}))
    trials = [PPO.propose({}), PPO.propose({"gamma": 0.95}), short.propose({}), UNIFIED.propose({})]
    assert len({each.trial.trial_hash for each in trials}) == 4


@pytest.mark.parametrize("mode", SearchMode)
def test_json_schema_accepts_deltas_within_the_bounds_only(mode):
    space = SPACES[mode]
    checker = jsonschema.Draft202012Validator(space.json_schema)
    assert checker.is_valid(space.base_values)
    assert checker.is_valid({})
    assert not checker.is_valid({"sharpe": 1})
    for knob in space.knobs:
        assert checker.is_valid({knob.name: knob.low})
        assert not checker.is_valid({knob.name: knob.high + 1})
