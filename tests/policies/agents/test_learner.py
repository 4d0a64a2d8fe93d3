import inspect
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save
from torch.distributions import Distribution
from torch.optim.optimizer import register_optimizer_step_pre_hook

from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.policies.agents import DEFAULT_HOOKS, PpoAgent, TrainingHooks
from nvtrader_pipelines.policies.agents.actor import ActorLearner
from nvtrader_pipelines.policies.agents.demeaning import demean_panel
from nvtrader_pipelines.policies.agents.evolution import EvolutionLearner
from nvtrader_pipelines.policies.agents.learner import EVERY_BACKBONE, EXTRACTORS
from nvtrader_pipelines.policies.agents.off_policy import ReplayLearner
from nvtrader_pipelines.policies.agents.pathwise import WindowLearner
from nvtrader_pipelines.policies.backbones import AutoencoderBackbone, Backbone, MlpBackbone, SharedAssetBackbone
from nvtrader_pipelines.policies.backbones.window import WindowBackbone
from nvtrader_pipelines.policies.fit import Start
from nvtrader_pipelines.policies.learned import open_policy
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from tests.contracts.families import members
from tests.markets import synthetic_panel
from tests.panels import eventful_panel, with_other_future
from tests.policies.small_learners import AGENT, CASES, LEARNERS, SPEC, WINDOW, bits, card_of, small, spec_of

PANEL = synthetic_panel(160, 3)
EVERY_CASE = pytest.mark.parametrize(("case", "spec", "agent"), [(case, *of) for case, of in CASES.items()], ids=CASES)
LOOPS = {"ppo", "recurrent_ppo", "sac", "grouped_ppo", "pathwise", "cma_es"}  # one for each kind of training loop
ONE_PER_LOOP = pytest.mark.parametrize(
    ("case", "spec", "agent"),
    [
        pytest.param(case, *of, id=case, marks=() if case in {*LOOPS, "shared_asset"} else pytest.mark.nightly)
        for case, of in CASES.items()
    ],
)
DECIDES_NOTHING = {"self", "policy", "env", "stats_window_size", "tensorboard_log", "verbose", "_init_setup_model"}
COMMON = {"policy_kwargs", "seed", "device"}


@cache
def fitted(case, seed):
    """What a case has learned, once for all tests that compare it with another training, or read it."""
    spec, agent = CASES[case]
    return agent.train(PANEL, spec, WINDOW, seed)


@cache
def barely(case):
    """What a case has after one step of almost no size, which is what it begins with."""
    spec, agent = CASES[case]
    return begun(agent).train(PANEL, spec, WINDOW, 1)


def begun(agent):
    """The agent with one step of almost no size."""
    return agent.model_copy(update={"total_timesteps": 1, "learning_rate": 1e-12})


@cache
def watched(case):
    """What a case has learned after another training, with every hook, and what it did meanwhile."""
    spec, agent = CASES[case]
    torch.rand(100)
    np.random.rand(100)  # noqa: NPY002 - the library shuffles with the global generator
    AGENT.train(PANEL, SPEC, WINDOW, 9)
    seen, saved = [], []
    hooks = TrainingHooks(report=seen.append, checkpoint=saved.append, sample_rate=1.0)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.chdir(folder)
        patch.setattr("tempfile.tempdir", None)
        fit, settings = settings_while(agent, spec, hooks)
        files = [path.name for path in Path(folder).iterdir()]
    return fit, seen, saved, settings, files


@pytest.mark.slow
@EVERY_CASE
def test_training_depends_on_its_seed_and_on_no_earlier_training(case, spec, agent):
    first, second = fitted(case, 0), watched(case)[0]
    assert bits(first) == bits(second)
    assert first.curve == second.curve
    assert bits(first) != bits(fitted(case, 1))


@pytest.mark.slow
@ONE_PER_LOOP
def test_training_from_a_start_begins_with_its_tensors_and_scaler(case, spec, agent):
    before, anew = fitted(case, 0), barely(case)
    start = Start(before.scaler.model_copy(), save(before.tensors), "")
    fit = begun(agent).train(PANEL, spec, WINDOW, 1, TrainingHooks(start=start))
    assert fit.scaler is start.scaler
    learned = [name for name, tensor in before.tensors.items() if not torch.equal(tensor, anew.tensors[name])]
    distance, whole = (
        sum((one[name] - before.tensors[name]).float().norm() for name in learned)
        for one in (fit.tensors, anew.tensors)
    )
    assert distance < 0.3 * whole  # a generation of candidates moves by its spread


def test_training_without_the_start_of_its_run_is_refused():
    with pytest.raises(ValueError, match="0000000000000000"):
        AGENT.model_copy(update={"start": "0" * 16}).train(PANEL, SPEC, WINDOW, 0)


@pytest.mark.slow
@EVERY_CASE
def test_training_changes_every_learned_tensor(case, spec, agent):
    fit, start = fitted(case, 1), barely(case).tensors
    unlearned = {name for name, tensor in fit.tensors.items() if torch.equal(tensor, start[name])}
    unlearned -= {name for name in start if "target" in name and ".encoder." in name}  # averaged, which rounds
    if isinstance(agent, ActorLearner):
        fixed = ("value", "critic", "log_std", "correlation")
        assert unlearned == {name for name in start if any(part in name for part in fixed)}
    else:
        critic = {name for name in start if "value" in name or "vf" in name}
        assert unlearned == (critic if is_without_critic(agent) else set()) | {
            name for name in start if ".encoder." in name and "target" not in name
        }


def is_without_critic(agent):
    return not agent.has_critic or (agent.kind == "grouped_ppo" and not agent.advantage.uses_critic)


@pytest.mark.slow
@ONE_PER_LOOP
def test_no_session_after_the_training_window_changes_a_trained_policy(case, spec, agent):
    panel = eventful_panel()
    window = (5, 110)
    trained = agent.train(panel, spec, window, 0)
    other = agent.train(with_other_future(panel, 110), spec, window, 0)
    assert bits(trained) == bits(other)
    assert trained.scaler == other.scaler


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ppo", "grouped_ppo"])
def test_training_on_two_stretches_plays_nothing_between_them(kind):
    agent, panel, stretches = LEARNERS[kind], synthetic_panel(260, 3), ((5, 110), (130, 259))
    between = {name: getattr(panel, name).copy() for name in ("close_returns", "overnight_returns")}
    for returns in between.values():
        returns[111:125] *= 2.0  # the observation at the second stretch's first session looks five sessions back
    trained, other = (agent.train(each, SPEC, stretches, 0) for each in (panel, replace(panel, **between)))
    assert bits(trained) == bits(other)
    assert trained.scaler == other.scaler
    alone = {frozenset(bits(agent.train(panel, SPEC, window, 0)).items()) for window in (*stretches, (5, 259))}
    assert frozenset(bits(trained).items()) not in alone


def test_one_window_equals_a_single_stretch():
    assert bits(AGENT.train(PANEL, SPEC, WINDOW, 0)) == bits(AGENT.train(PANEL, SPEC, (WINDOW,), 0))


@pytest.mark.slow
@EVERY_CASE
def test_hooks_do_not_change_the_trained_policy(case, spec, agent):
    plain, (hooked, seen, saved, *_) = fitted(case, 0), watched(case)
    assert bits(hooked) == bits(plain)
    assert [point[:2] for point in seen] == hooked.curve == plain.curve
    assert len(seen) > 0
    assert plain.rollouts.is_empty()
    assert hooked.rollouts.is_empty() == isinstance(agent, WindowLearner)  # which steps no environment
    assert bool(saved) != isinstance(agent, ReplayLearner)


@pytest.mark.slow
@ONE_PER_LOOP
def test_demean_returns_trains_on_the_demeaned_panel(case, spec, agent):
    on_own, on_known = (agent.model_copy(update={"demean_returns": value}) for value in (True, False))
    if spec.observation.kind != "per_asset":  # whose scaler is fitted on the market as it is
        other = on_known if agent.demean_returns else on_own
        assert bits(fitted(case, 0)) != bits(other.train(PANEL, spec, WINDOW, 0))
    else:
        own = fitted(case, 0) if agent.demean_returns else on_own.train(PANEL, spec, WINDOW, 0)
        assert bits(own) == bits(on_known.train(demean_panel(PANEL, [WINDOW]), spec, WINDOW, 0))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_training_leaves_nothing_on_the_disk(case):
    files = watched(case)[-1]
    assert [name for name in files if not name.startswith("torchinductor")] == []  # torch's, at first import


@pytest.mark.slow
@EVERY_CASE
def test_network_with_loaded_tensors_acts_deterministically(case, spec, agent):
    fit = fitted(case, 0)
    simulation = PortfolioSimulation(PANEL, spec, 1, scaler=fit.scaler)
    network = agent.network(simulation.builder.layout, observation_space(simulation), action_space(simulation))
    assert set(network.state_dict()) == set(fit.tensors)
    network.load_state_dict(fit.tensors)
    observation = torch.as_tensor(simulation.observe())
    with torch.no_grad():
        first, second = (agent.act(network, observation, None) for _ in range(2))
    assert first.action.tobytes() == second.action.tobytes()
    assert len(first.action) == spec.action.size(3).length
    assert first.action.dtype == np.float32
    assert (first.value, first.log_prob) == (second.value, second.log_prob)


class Prepared(MlpBackbone):
    """Keeps what it is prepared with, and changes what it prepares."""

    def prepare(self, policy, history, seed):
        SEEN.append((history, seed))
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.fill_(0.0)


SEEN = []
FLEXIBLE = {kind: agent for kind, agent in LEARNERS.items() if agent.backbones >= EXTRACTORS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent",
    [
        pytest.param(agent, id=kind, marks=() if kind in LOOPS else pytest.mark.nightly)
        for kind, agent in FLEXIBLE.items()
    ],
)
def test_backbone_pretrains_on_the_training_window_only(agent):
    SEEN.clear()
    prepared = agent.model_copy(update={"backbone": Prepared(hidden=(8,))})
    fit = prepared.train(PANEL, spec_of(agent), WINDOW, 1)
    assert bits(fit) != bits(fitted(agent.kind, 1))
    (((observations, next_returns), seed),) = SEEN
    simulation = PortfolioSimulation(PANEL, SPEC, 1, first=WINDOW[0], last=WINDOW[1])
    assert observations.shape == (WINDOW[1] - WINDOW[0] + 1, simulation.builder.length)
    simulation.accounts.open([0], [100])
    np.testing.assert_array_equal(observations[95], simulation.observe()[0])
    np.testing.assert_array_equal(next_returns[:-1], PANEL.close_returns[WINDOW[0] + 1 : WINDOW[1] + 1])
    assert next_returns[-1].isnan().all()
    assert seed == 1


WINDOW_BACKBONES = [member for member in members(Backbone) if issubclass(member, WindowBackbone)]
WINDOWED = SPEC.model_copy(update={"lookback": 20})


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("backbone", WINDOW_BACKBONES)
@pytest.mark.parametrize("agent", FLEXIBLE.values(), ids=FLEXIBLE)
def test_every_learner_trains_and_decides_with_every_window_backbone(agent, backbone):
    on = agent.model_copy(update={"backbone": backbone()})
    spec = spec_of(agent).model_copy(update={"lookback": 20})
    first, second = (on.train(PANEL, spec, WINDOW, 3) for _ in range(2))
    assert bits(first) == bits(second)
    policy = open_policy(card_of(PANEL, first, spec, on), first.tensors, PANEL)
    assert policy.decide(PANEL, 155, opening_account(3)).target.sum() == pytest.approx(1.0)


def library_settings(agent):
    return agent.settings(3) if "n_actions" in inspect.signature(agent.settings).parameters else agent.settings()


LIBRARY = {kind: agent for kind, agent in LEARNERS.items() if hasattr(agent, "algorithm")}


@pytest.mark.parametrize("agent", LIBRARY.values(), ids=LIBRARY)
def test_settings_name_every_argument_that_affects_results(agent):
    arguments = set(inspect.signature(agent.algorithm.__init__).parameters)
    assert set(library_settings(agent)) | COMMON == arguments - DECIDES_NOTHING


@pytest.mark.parametrize("agent", LIBRARY.values(), ids=LIBRARY)
def test_every_agent_field_changes_an_argument_or_the_network(agent):
    others = {"kind", "total_timesteps", "n_envs", "demean_returns", "backbone", "start"}
    fields = set(type(agent).model_fields) - others
    fields = {"replay_buffer_class" if name == "replay" else name for name in fields}
    arguments = set(library_settings(agent)) | {"log_std_init", "lstm_hidden_size", "n_lstm_layers", "n_quantiles"}
    assert fields - {"final_learning_rate"} <= arguments


def test_on_policy_agents_take_every_backbone_and_others_extractors():
    assert {"shared_asset", "eiie_conv", "sagcn"} == EVERY_BACKBONE - EXTRACTORS
    every = {kind for kind, agent in LEARNERS.items() if agent.backbones == EVERY_BACKBONE}
    assert every == {"ppo", "a2c", "grouped_ppo", "pathwise", "eiie"}
    others = {kind for kind, agent in LEARNERS.items() if agent.backbones not in (EVERY_BACKBONE, EXTRACTORS)}
    assert others == {"ars", "cma_es", "sarl", "investor_imitator", "trpo", "deeptrader"}


def test_policies_of_three_learners_can_be_tuned():
    assert {kind for kind, agent in LEARNERS.items() if agent.is_tunable} == {"ppo", "a2c", "grouped_ppo"}


@pytest.mark.parametrize("kind", [kind for kind, agent in LEARNERS.items() if agent.backbones == EXTRACTORS])
def test_unsupported_backbone_raises_before_training(kind):
    agent = small(type(LEARNERS[kind])).model_copy(update={"backbone": SharedAssetBackbone()})
    with pytest.raises(ValueError):
        agent.train(PANEL, spec_of(agent), WINDOW, 0)


@pytest.mark.parametrize("member", [type(agent) for agent in LEARNERS.values()])
@pytest.mark.parametrize(
    ("field", "value"), [("gamma", 1.0), ("learning_rate", 2.0), ("total_timesteps", 0), ("final_learning_rate", 2.0)]
)
def test_hyperparameters_out_of_range_are_invalid(member, field, value):
    with pytest.raises(ValidationError):
        member.model_validate({field: value})


@pytest.mark.parametrize("agent", LEARNERS.values(), ids=LEARNERS)
def test_learning_rate_falls_linearly_to_its_final_share(agent):
    schedule = agent.schedule()
    assert schedule(1.0) == pytest.approx(agent.learning_rate)
    last = agent.learning_rate * agent.final_learning_rate
    assert schedule(0.5) == pytest.approx((agent.learning_rate + last) / 2.0)
    assert [schedule(remaining) for remaining in (0.0, -0.1, -10.0)] == pytest.approx([last] * 3)


def settings_while(agent, spec, hooks=DEFAULT_HOOKS):
    """What an agent learns, and the settings at each step of an optimizer meanwhile, with slow ones before."""
    settings = set()

    def note(optimizer, *_):
        fused = all(group.get("fused") is True for group in optimizer.param_groups)
        settings.add((type(optimizer), fused, torch.get_num_threads(), Distribution._validate_args))

    hook = register_optimizer_step_pre_hook(note)
    Distribution.set_default_validate_args(True)  # as torch has it at first
    try:
        fit = agent.train(PANEL, spec, WINDOW, 0, hooks)
    finally:
        hook.remove()
        Distribution.set_default_validate_args(False)
    return fit, settings


FAST = {(torch.optim.Adam, True, 1, False)}


@EVERY_CASE
def test_learners_use_fused_adam_one_thread_and_no_argument_checks(case, spec, agent):
    own_updates = isinstance(agent, (PpoAgent, EvolutionLearner))  # without an optimizer
    two = {(torch.optim.AdamW, True, 1, False), (torch.optim.Muon, False, 1, False)}  # Muon has no fused form
    expected = set() if own_updates else two if agent.kind == "differentiable_grpo" else FAST
    assert watched(case)[3] == expected
    assert torch.get_num_threads() == 1


@pytest.mark.slow
def test_resumed_training_and_pretraining_use_fused_adam():
    saved = []
    agent = PpoAgent(**{**AGENT.model_dump(), "total_timesteps": 1280, "backbone": AutoencoderBackbone(epochs=1)})
    assert settings_while(agent, WINDOWED, TrainingHooks(checkpoint=saved.append))[1] == FAST
    assert settings_while(agent, WINDOWED, TrainingHooks(resume_from=saved[-1]))[1] == FAST


def test_a_training_that_diverged_gives_no_policy(monkeypatch):
    agent = LEARNERS["ppo"]
    learn = type(agent).learn

    def diverged(self, simulation, seed, hooks):
        policy, log = learn(self, simulation, seed, hooks)
        next(policy.parameters()).data.fill_(float("nan"))
        return policy, log

    monkeypatch.setattr(type(agent), "learn", diverged)
    with pytest.raises(ValueError):
        agent.train(PANEL, SPEC, WINDOW, 0)


def test_training_through_the_pipeline_differs_and_says_what_was_cut():
    pipeline = WeightPipeline(risk_limits=RiskLimits(max_position=0.26))
    spec = SPEC.model_copy(update={"pipeline": True})
    hooks = TrainingHooks(sample_rate=1.0, pipeline=pipeline)
    through, again, direct = (AGENT.train(PANEL, each, WINDOW, 0, hooks) for each in (spec, spec, SPEC))
    assert bits(through) == bits(again)
    assert bits(through) != bits(direct)
    cuts = [json.loads(info)["truncated"] for info in through.rollouts["info"]]
    assert set(cuts) == {True, False}
    assert "truncated" not in json.loads(direct.rollouts["info"][0])
