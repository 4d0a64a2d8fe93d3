import tempfile

import numpy as np
import pytest
import torch

from nvtrader_pipelines.policies.agents.checkpoints import learn
from nvtrader_pipelines.policies.fit import DEFAULT_HOOKS
from nvtrader_pipelines.policies.world_agents.execution_backbones import EteoDualHead, PdDualRnn
from nvtrader_pipelines.policies.world_agents.opd import ForesightSimulation, OpdAgent
from nvtrader_pipelines.worlds.order_execution import OrderExecution
from nvtrader_pipelines.worlds.price_moves import MarketMoves
from tests.policies.world_agents.planted import planted_panel

WINDOW = (0, 199)
PANEL = planted_panel(250, 5, keep=0.9)
WORLD = OrderExecution(moves=MarketMoves(), lookback=4)
AGENT = OpdAgent(total_timesteps=256, n_envs=16, n_steps=8, batch_size=64, backbone=EteoDualHead(hidden=(8,)))


def observed(simulation):
    """Observations (k, n, length) of orders that sell a fifth of what is left in each step."""
    n = simulation.n_accounts
    simulation.reset(range(n), [np.random.default_rng([2, i]) for i in range(n)])
    rows = [simulation.observe()]
    rows += [simulation.step(np.full((n, 1), 0.2)).observation for _ in range(WORLD.n_steps)]
    return np.array(rows)


def test_foresight_ends_the_observations_with_the_next_moves():
    simulation = ForesightSimulation(WORLD, 6, PANEL, WINDOW)
    simulation.look_ahead(3)
    wide = observed(simulation)
    assert simulation.observation_space.shape == (3 + 4 + 3,)
    moves = np.pad(simulation.moves / WORLD.move_deviation, [(0, 0), (0, 3)])  # 0 beyond the end
    for k, rows in enumerate(wide):
        np.testing.assert_allclose(rows[:, 7:], moves[:, 4 + k : 7 + k], rtol=1e-6)
    np.testing.assert_array_equal(wide[:, :, :7], observed(WORLD.simulate(6, PANEL, WINDOW)))


def test_only_the_training_has_foresight():
    env = AGENT.model(WORLD, PANEL, WINDOW, 0).get_env()
    assert env.reset().shape == (16, 3 + 4 + AGENT.foresight)
    assert WORLD.examine(PANEL, WINDOW).observation_space.shape == (3 + 4,)


@pytest.mark.slow
@pytest.mark.parametrize(("backbone", "lookback"), [(AGENT.backbone, 4), (PdDualRnn(), 4), (PdDualRnn(), 0)])
def test_fit_holds_the_student_alone_and_decides_without_foresight(backbone, lookback, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    agent = AGENT.model_copy(update={"backbone": backbone})
    world = WORLD.model_copy(update={"lookback": lookback})
    tensors = agent.train(world, PANEL, WINDOW, 0).tensors
    simulation = world.examine(PANEL, WINDOW)
    narrow = agent.network(simulation.observation_space, simulation.action_space).state_dict()
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        name: tensor.shape for name, tensor in narrow.items()
    }
    fractions = agent.start(simulation, tensors)(simulation.observe())
    assert fractions.shape == (simulation.n_accounts, 1)
    assert simulation.action_space.contains(fractions[0])
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("SB3")] == []  # of a logger


@pytest.mark.slow
def test_distillation_brings_the_student_closer_to_the_teacher():
    simulation = ForesightSimulation(WORLD, 200, PANEL, WINDOW)
    simulation.look_ahead(AGENT.foresight)
    rows = torch.from_numpy(observed(simulation)[:-1].reshape(-1, 3 + 4 + AGENT.foresight))
    distances, teachers = [], []
    for distillation in (1e-9, 1.0):
        agent = AGENT.model_copy(update={"distillation": distillation, "total_timesteps": 2560})
        model = agent.model(WORLD, PANEL, WINDOW, 0)
        learn(model, model.get_env(), agent.total_timesteps, DEFAULT_HOOKS, 0)
        (teacher,) = model.policy.teacher
        with torch.no_grad():
            taught, learned = (policy.get_distribution(rows).distribution.mean for policy in (teacher, model.policy))
        distances.append(float((taught - learned).abs().mean()))
        teachers.append(taught)
    torch.testing.assert_close(*teachers, rtol=0.0, atol=0.0)  # the teacher does not depend on the weight
    assert distances[1] < 0.5 * distances[0]
