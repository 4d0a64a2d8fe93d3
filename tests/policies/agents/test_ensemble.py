import pytest

from nvtrader_pipelines.components.component import members
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.agents import (
    A2cAgent,
    Agent,
    ArsAgent,
    DpoAgent,
    EnsembleAgent,
    Learner,
    PpoAgent,
    RecurrentPpoAgent,
)
from nvtrader_pipelines.policies.agents.ensemble import MemberAgent
from tests.markets import synthetic_panel
from tests.policies.small_learners import AGENT, SPEC, WINDOW, bits, small

PAIR = EnsembleAgent(members=(PpoAgent(total_timesteps=1000), A2cAgent(total_timesteps=2001)))


def test_members_may_be_every_learner_that_starts_anew():
    learners = {member for member in members(Agent) if issubclass(member, Learner)}
    assert set(members(MemberAgent)) == learners - {DpoAgent}


@pytest.mark.parametrize("n_members", range(2, 9))
def test_default_seeds_are_fewest_that_go_round(n_members):
    agent = EnsembleAgent(members=(PpoAgent(),) * n_members)
    seeds = ExperimentSpec(name="a", agent=agent).seeds
    assert seeds == tuple(range({2: 4}.get(n_members, n_members)))


def test_agent_of_seed_goes_by_its_position():
    spec = ExperimentSpec(name="a", agent=PAIR, seeds=(7, 3, 5, 9))
    assert [spec.agent_of(seed).kind for seed in spec.seeds] == ["ppo", "a2c", "ppo", "a2c"]


def test_ensemble_has_the_traits_of_its_members():
    stateful = EnsembleAgent(members=(PpoAgent(), RecurrentPpoAgent(), ArsAgent()))
    assert (stateful.is_stateful, PAIR.is_stateful, PAIR.is_tunable) == (True, False, False)
    assert (stateful.caveat, PAIR.caveat) == (ArsAgent.caveat, "")
    assert PAIR.total_timesteps == 1501
    assert [member.total_timesteps for member in PAIR.shorten(1500).members] == [1000, 1500]


def test_alias_of_finrl_gives_the_same_hash():
    named = [ExperimentSpec(name="a", agent={"kind": kind}) for kind in (*EnsembleAgent.aliases, "ensemble")]
    assert len({spec.spec_hash for spec in named}) == 1


def test_training_of_a_seed_alone_is_that_of_the_member_of_its_number():
    panel, pair = synthetic_panel(160, 3), EnsembleAgent(members=(AGENT, small(A2cAgent)))
    assert bits(pair.train(panel, SPEC, WINDOW, 3)) == bits(small(A2cAgent).train(panel, SPEC, WINDOW, 3))
