"""Small observations, networks and trainings for tests of backbones."""

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.policies.backbones import (
    AutoencoderBackbone,
    PatchTstBackbone,
    RecurrentBackbone,
    TransformerBackbone,
)
from nvtrader_pipelines.policies.backbones.backbone import TrainingHistory
from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv
from tests.markets import synthetic_panel
from tests.policies.small_learners import SPEC, WINDOW

N, LOOKBACK, REST = 3, 12, 5  # names, sessions, columns that are not the window's
LAYOUT = ObservationLayout(LOOKBACK * N + REST, N, LOOKBACK)
WINDOWED = [
    RecurrentBackbone(cell="gru"),
    RecurrentBackbone(cell="lstm"),
    TransformerBackbone(),
    TransformerBackbone(n_layers=2),
    PatchTstBackbone(),
    PatchTstBackbone(patch_length=4, stride=3, n_layers=2),
    AutoencoderBackbone(frozen=False),
]


def name_of(backbone) -> str:
    """The kind and what is not default, for a test's id."""
    changed = backbone.model_dump(exclude_defaults=True, exclude={"kind"})
    return "-".join([backbone.kind, *(str(value) for value in changed.values())])


def space(length: int) -> spaces.Box:
    """Any observation of that length."""
    return spaces.Box(-np.inf, np.inf, (length,), np.float32)


def extractor_of(backbone, layout=LAYOUT, seed=0):
    """The untrained feature extractor."""
    torch.manual_seed(seed)
    arguments = backbone.extractor(layout)
    return arguments["features_extractor_class"](space(layout.length), **arguments["features_extractor_kwargs"])


def policy_of(backbone, layout=LAYOUT, seed=0, log_std=-0.5):
    """The untrained network of an on-policy agent."""
    torch.manual_seed(seed)
    policy, arguments = backbone.actor_critic(layout, log_std)
    actions = spaces.Box(-3, 3, (layout.n_symbols + 1,), np.float32)
    return policy(space(layout.length), actions, lambda _: 1e-3, **arguments)


def observed(n=4, layout=LAYOUT, seed=0):
    """Random observations (n, length)."""
    return torch.randn(n, layout.length, generator=torch.Generator().manual_seed(seed))


def history(observations) -> TrainingHistory:
    """Observations of a training, and what every name returns after each."""
    returns = 0.01 * torch.randn(len(observations), N, generator=torch.Generator().manual_seed(1))
    return TrainingHistory(observations, returns.double())


def environment(spec: EnvSpec = SPEC, seed=0) -> PortfolioVecEnv:
    """Four portfolios of three names."""
    first, last = WINDOW
    return PortfolioVecEnv(PortfolioSimulation(synthetic_panel(160, 3), spec, 4, first=first, last=last), seed)


def trained(backbone, spec: EnvSpec = SPEC, seed=0, total_timesteps=256):
    """The network before and after a short training by PPO, as two dictionaries of tensors."""
    env = environment(spec, seed)
    policy, arguments = backbone.actor_critic(env.simulation.builder.layout, -0.5)
    model = PPO(
        policy, env, n_steps=16, batch_size=32, n_epochs=2, seed=seed, device="cpu", policy_kwargs=arguments, verbose=0
    )
    backbone.prepare(model.policy, history(torch.as_tensor(env.reset()).repeat(4, 1)), seed)
    before = {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}
    model.learn(total_timesteps)
    return before, model.policy.state_dict()


def bits(tensors) -> dict[str, bytes]:
    """Every tensor's bytes."""
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
