import numpy as np
import pytest
import torch
from pydantic import ValidationError

from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.policies.agents import CrossQAgent, DdpgAgent, SacAgent, Td3Agent, TqcAgent, TrainingHooks
from nvtrader_pipelines.policies.archive import read_archive, write_archive
from tests.markets import synthetic_panel
from tests.policies.agents.learners import environment
from tests.policies.small_learners import SPEC, WINDOW, bits, card_of, small

PANEL = synthetic_panel(160, 3)
MEMBERS = [SacAgent, Td3Agent, DdpgAgent, TqcAgent, CrossQAgent]
EVERY = pytest.mark.parametrize("member", MEMBERS)


def network(agent):
    simulation = PortfolioSimulation(PANEL, SPEC, 1)
    spaces = observation_space(simulation), action_space(simulation)
    return agent.network(simulation.builder.layout, *spaces), torch.as_tensor(simulation.observe())


@EVERY
def test_actions_fill_the_bounds_of_the_space(member):
    agent = small(member)
    net, observation = network(agent)
    with torch.no_grad():
        extremes = [agent.act(net, observation * scale, None).action for scale in (1e6, -1e6)]
    assert np.abs(extremes).max() <= 5.0
    assert np.abs(extremes).max() > 4.9


@EVERY
def test_actions_are_bounded_and_uniform_before_learning_starts(member):
    agent = small(member, total_timesteps=1280).model_copy(update={"learning_starts": 1280})
    actions = np.array(agent.train(PANEL, SPEC, WINDOW, 0, TrainingHooks(sample_rate=1.0)).rollouts["action"].to_list())
    assert np.abs(actions).max() <= 5.0
    assert actions.mean() == pytest.approx(0.0, abs=0.2)
    assert actions.std() == pytest.approx(10.0 / np.sqrt(12.0), rel=0.05)


@EVERY
def test_nothing_is_learned_before_learning_starts(member):
    agent = small(member).model_copy(update={"learning_starts": 256})
    longer = agent.model_copy(update={"total_timesteps": 128})
    assert bits(agent.train(PANEL, SPEC, WINDOW, 0)) == bits(longer.train(PANEL, SPEC, WINDOW, 0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "member",
    [
        SacAgent,
        CrossQAgent,
        *(pytest.param(member, marks=pytest.mark.nightly) for member in (Td3Agent, DdpgAgent, TqcAgent)),
    ],
)
def test_every_update_setting_changes_the_tensors(member):
    settings = {"train_freq": 2, "gradient_steps": 2, "batch_size": 32, "tau": 0.5, "buffer_size": 64}
    known = settings.keys() & member.model_fields.keys()
    agents = [small(member), *(small(member).model_copy(update={name: settings[name]}) for name in known)]
    assert len({str(bits(agent.train(PANEL, SPEC, WINDOW, 0))) for agent in agents}) == len(agents)


def test_off_policy_value_is_the_minimum_of_two_critics():
    for member in (SacAgent, Td3Agent, CrossQAgent):
        agent = small(member)
        net, observation = network(agent)
        with torch.no_grad():
            output = agent.act(net, observation, None)
            both = [float(value) for value in net.critic(observation, net(observation, deterministic=True))]
        assert both[0] != both[1]
        assert output.value == min(both)
        assert output.log_prob is None


def test_ddpg_has_one_critic_and_updates_its_actor_every_time():
    agent = small(DdpgAgent)
    net, observation = network(agent)
    with torch.no_grad():
        (value,) = net.critic(observation, net(observation, deterministic=True))
        assert agent.act(net, observation, None).value == float(value)
    model = agent.algorithm(agent.policy_class, environment(PANEL), **agent.settings(4))
    assert (model.policy_delay, model.target_noise_clip) == (1, 0.0)


def test_crossq_renormalizes_after_a_tenth_of_its_updates_and_stores_its_counters():
    agent = small(CrossQAgent)
    assert "tau" not in agent.settings(4)
    heads = agent.heads(PortfolioSimulation(PANEL, SPEC, 1).builder.layout)
    assert heads["renorm_warmup_steps"] == 2  # of (256 - 64) / 8 = 24 updates
    assert heads["optimizer_kwargs"]["betas"] == (0.5, 0.999)
    fit = agent.train(PANEL, SPEC, WINDOW, 0)
    _, tensors = read_archive(write_archive(card_of(PANEL, fit, agent=agent), fit.tensors))
    counters = {name: tensors[name] for name in fit.tensors if name.endswith(".steps")}
    assert {(name.split(".")[0], int(steps), steps.dtype) for name, steps in counters.items()} == {
        ("critic", 24, torch.int64),
        ("actor", 8, torch.int64),
    }


def test_tqc_value_is_the_mean_of_all_quantiles():
    agent = small(TqcAgent, n_quantiles=7)
    net, observation = network(agent)
    with torch.no_grad():
        quantiles = net.critic(observation, net(observation, deterministic=True))
        assert quantiles.shape == (1, 2, 7)
        assert agent.act(net, observation, None).value == pytest.approx(float(quantiles.mean()))


@pytest.mark.slow
def test_td3_explores_by_its_noise():
    fits = [
        small(Td3Agent, action_noise=noise).train(PANEL, SPEC, WINDOW, 0, TrainingHooks(sample_rate=1.0))
        for noise in (0.0, 0.1)
    ]
    known = [fit.rollouts.filter(fit.rollouts["episode"] < 8)["action"].to_list() for fit in fits]
    assert known[0] != known[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "member", [SacAgent, *(pytest.param(member, marks=pytest.mark.nightly) for member in (TqcAgent, CrossQAgent))]
)
def test_ent_coef_may_be_auto_or_zero(member):
    fits = [small(member, ent_coef=value).train(PANEL, SPEC, WINDOW, 0) for value in ("auto", 0.0, 0.5)]
    assert len({tuple(sorted(bits(fit).items())) for fit in fits}) == 3
    with pytest.raises(ValidationError):
        member(ent_coef="auto_0.1")


@EVERY
def test_off_policy_agent_without_updates_is_invalid(member):
    with pytest.raises(ValidationError):
        member(total_timesteps=1000)
    with pytest.raises(ValidationError):
        member(buffer_size=255)


def test_tqc_that_drops_every_quantile_is_invalid():
    with pytest.raises(ValidationError):
        TqcAgent(n_quantiles=5, top_quantiles_to_drop_per_net=5)


@EVERY
@pytest.mark.parametrize(
    ("field", "value"), [("tau", 0.0), ("tau", 1.1), ("train_freq", 0), ("gradient_steps", 0), ("learning_starts", -1)]
)
def test_hyperparameters_out_of_range_are_invalid(member, field, value):
    with pytest.raises(ValidationError):
        member.model_validate({field: value})
