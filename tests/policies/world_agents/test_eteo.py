from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.policies.world_agents.closed_forms import AvellanedaStoikovAgent
from nvtrader_pipelines.policies.world_agents.eteo import EteoAgent
from nvtrader_pipelines.policies.world_agents.execution_backbones import EteoDualHead, PdDualRnn
from nvtrader_pipelines.policies.world_agents.opd import OpdAgent
from nvtrader_pipelines.storage.world_files import read_world_file
from nvtrader_pipelines.worlds.market_making import AvellanedaStoikovResidual, MarketMaking
from nvtrader_pipelines.worlds.order_execution import OrderExecution
from nvtrader_pipelines.worlds.price_moves import MarketMoves
from tests.policies.world_agents.planted import planted_panel, rewards, trained_rewards

pytestmark = pytest.mark.slow

MODEL = OrderExecution(penalizes_risk=True, volatility=0.3)  # calm, so that a test can tell 5 %
TRENDS = OrderExecution(moves=MarketMoves(), lookback=3)
TRAIN, TEST = (0, 699), (700, 1099)
THOROUGH = [
    pytest.param(member(total_timesteps=50_000), seed, marks=pytest.mark.nightly, id=f"{member.__name__}-{seed}")
    for member in (EteoAgent, OpdAgent)
    for seed in range(3)
]


@pytest.mark.parametrize(("agent", "seed"), [(EteoAgent(total_timesteps=16_000), 0), *THOROUGH])
def test_learner_equals_the_closed_form_where_its_model_is_right(agent, seed):
    reference = rewards(MODEL, MODEL.reference_actions).sum(axis=0).mean()
    untrained = rewards(MODEL, lambda observations: np.full((len(observations), 1), 0.5)).sum(axis=0).mean()
    assert untrained < 1.3 * reference  # costs are negative
    learned = trained_rewards(agent, MODEL, seed=seed).sum(axis=0).mean()
    assert learned == pytest.approx(reference, rel=0.05)


@pytest.mark.parametrize(("agent", "seed"), [(EteoAgent(total_timesteps=10_000), 0), *THOROUGH])
def test_learner_beats_the_closed_form_where_moves_have_trends(agent, seed):
    panel = planted_panel(1100, 5, keep=0.9)
    reference = rewards(TRENDS, TRENDS.reference_actions, panel, TEST).sum(axis=0)
    gains = trained_rewards(agent, TRENDS, panel, TRAIN, TEST, seed).sum(axis=0) - reference
    assert gains.mean() > -0.1 * reference.mean()
    assert gains.mean() > 4.0 * gains.std() / len(gains) ** 0.5


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
def test_learner_beats_the_closed_form_on_the_shipped_day_of_quotes(seed):
    spec = read_world_file(Path(__file__).parents[3] / "data" / "worlds" / "make-market.yaml")
    reference = rewards(spec.world, spec.world.reference_actions).sum(axis=0)
    gains = trained_rewards(spec.agent, spec.world, seed=seed).sum(axis=0) - reference
    assert gains.mean() > 4.0 * gains.std() / len(gains) ** 0.5


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
def test_market_maker_equals_the_closed_form_of_its_action_where_the_model_is_right(seed):
    agent = EteoAgent(
        total_timesteps=200_000,
        n_steps=100,
        batch_size=1600,
        gae_lambda=0.9,
        backbone=EteoDualHead(initial_std=0.1),
    )
    world = MarketMaking(action=AvellanedaStoikovResidual(reach=1.0))
    closed_form = AvellanedaStoikovAgent().start(world.examine(None, None), {})
    differences = trained_rewards(agent, world, seed=seed).sum(axis=0) - rewards(world, closed_form).sum(axis=0)
    assert abs(differences.mean()) < max(0.01 * 65.0, 4.0 * differences.std() / len(differences) ** 0.5)


@pytest.mark.parametrize("backbone", [EteoDualHead, PdDualRnn])
@pytest.mark.parametrize("initial_std", [0.0, 0.001, 1.5])
def test_deviation_out_of_bounds_is_refused(backbone, initial_std):
    with pytest.raises(ValidationError, match=r"initial_std"):
        backbone(initial_std=initial_std)
