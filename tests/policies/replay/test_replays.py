import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.envs.terminations import DrawdownTermination
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.agents import Agent, DdpgAgent, SacAgent
from nvtrader_pipelines.policies.agents.off_policy import ReplayLearner
from nvtrader_pipelines.policies.replay import GeneralReplay, NStepReplay, PrioritizedReplay
from tests.contracts.families import members
from tests.markets import synthetic_panel
from tests.policies.agents.learners import environment
from tests.policies.small_learners import SPEC, WINDOW, bits, small, spec_of

PANEL = synthetic_panel(160, 3)
LEARNERS = [member for member in members(Agent) if issubclass(member, ReplayLearner)]


@pytest.fixture(scope="module")
def played():
    """Model that stored three-step returns of portfolios whose episodes terminate or are truncated."""
    spec = SPEC.model_copy(update={"terminations": (DrawdownTermination(limit=0.05, truncates=False),)})
    agent = small(SacAgent, replay=NStepReplay(n_steps=3), learning_starts=240)
    return agent.algorithm("MlpPolicy", environment(PANEL, spec), seed=0, device="cpu", **agent.settings(4)).learn(240)


def test_n_step_returns_equal_the_sums_by_hand_on_portfolios(played):
    buffer, gamma, seen = played.replay_buffer, played.gamma, set()
    n_rows, places = buffer.size(), np.ndindex(buffer.size(), buffer.n_envs)
    place_of = {buffer.actions[place].tobytes(): place for place in places}
    samples = buffer.sample(500)
    for j, action in enumerate(samples.actions.numpy()):
        row, portfolio = place_of[action.tobytes()]
        rewards = []
        for last in (row, row + 1, row + 2):
            place = last % n_rows, portfolio
            rewards.append(float(buffer.rewards[place]))
            if buffer.dones[place] or place[0] == (buffer.pos - 1) % n_rows:
                break
        is_terminal = bool(buffer.dones[place] and not buffer.timeouts[place])
        seen.add((len(rewards), is_terminal, bool(buffer.timeouts[place])))
        total = sum(gamma**k * reward for k, reward in enumerate(rewards))
        assert float(samples.rewards[j]) == pytest.approx(total, rel=1e-5, abs=1e-8)
        assert float(samples.discounts[j]) == pytest.approx(gamma ** len(rewards))
        assert bool(samples.dones[j]) == is_terminal
        assert samples.next_observations[j].numpy().tobytes() == buffer.next_observations[place].tobytes()
    assert {(n, *end) for n in (1, 2, 3) for end in ((True, False), (False, True))} | {(3, False, False)} <= seen


@pytest.mark.slow
@pytest.mark.parametrize("replay", [NStepReplay(), PrioritizedReplay(), PrioritizedReplay(alpha=0.0)], ids=str)
def test_replay_changes_the_trained_policy_and_depends_on_the_seed_only(replay):
    agent = small(DdpgAgent, replay=replay)
    first, second = (bits(agent.train(PANEL, SPEC, WINDOW, 1)) for _ in range(2))
    assert first == second
    assert first != bits(small(DdpgAgent).train(PANEL, SPEC, WINDOW, 1))


@pytest.mark.parametrize("member", LEARNERS)
def test_default_replay_is_no_part_of_the_content_and_another_is(member):
    assert "replay" not in member(replay=GeneralReplay()).model_dump(mode="json")
    agent = member.model_validate({"replay": {"kind": "NStepInfoReplayBuffer"}})
    assert agent.model_dump(mode="json")["replay"] == {"kind": "n_step", "n_steps": 3}
    assert agent.settings(4)["n_steps"] == 3


@pytest.mark.parametrize("member", LEARNERS)
def test_prioritized_replay_needs_an_update_that_takes_weights(member):
    agent = member(replay=PrioritizedReplay())
    if member.prioritized:
        assert issubclass(agent.prioritized_algorithm, agent.algorithm)
        assert ExperimentSpec(name="a", agent=agent, environment=spec_of(agent)).agent == agent
    else:
        with pytest.raises(ValidationError):
            ExperimentSpec(name="a", agent=agent, environment=spec_of(agent))
