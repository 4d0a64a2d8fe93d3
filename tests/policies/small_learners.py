"""Learners, environments and policy cards of small size, for tests that train."""

from nvtrader_pipelines.envs.actions import ChoiceAction, ResidualAction
from nvtrader_pipelines.envs.observations import PerAssetObservation, RegimeObservation
from nvtrader_pipelines.envs.rewards import BenchmarkRelative
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.agents import (
    Agent,
    DeepTraderAgent,
    DpoAgent,
    Fit,
    InvestorImitatorAgent,
    Learner,
    PpoAgent,
    SarlAgent,
)
from nvtrader_pipelines.policies.archive import PolicyCard
from nvtrader_pipelines.policies.backbones import (
    InvestorsBackbone,
    MlpBackbone,
    SagcnBackbone,
    SarlLstmBackbone,
    SharedAssetBackbone,
)
from tests.contracts.families import members

SPEC = EnvSpec(lookback=5, episode_len=20, rebal_freq=5)
AGENT = PpoAgent(
    total_timesteps=256, n_envs=8, n_steps=16, batch_size=64, n_epochs=2, backbone=MlpBackbone(hidden=(8,))
)
RESIDUAL_SPEC = EnvSpec(
    episode_len=20,
    observation=PerAssetObservation(),
    action=ResidualAction(),
    rewards=(BenchmarkRelative(),),
    vol_penalty=0.0,
)
RESIDUAL_AGENT = AGENT.model_copy(update={"backbone": SharedAssetBackbone(), "demean_returns": True})
WINDOW = (5, 150)
SMALL = {
    "total_timesteps": 256,
    "n_envs": 8,
    "n_steps": 16,
    "batch_size": 64,
    "n_epochs": 2,
    "n_groups": 2,
    "group_size": 4,
    "buffer_size": 128,
    "learning_starts": 64,
    "lstm_hidden_size": 8,
    "n_starts": 2,
    "n_delta": 2,
    "n_top": 2,
    "population_size": 4,
    "backbone": MlpBackbone(hidden=(8,)),
}


OWN_BACKBONES = {  # of learners with networks of their own
    DeepTraderAgent: SagcnBackbone(channels=4, n_layers=2, critic_hidden=8),
    InvestorImitatorAgent: InvestorsBackbone(hidden=(8,), descriptor_hidden=8, epochs=1),
    SarlAgent: SarlLstmBackbone(hidden=(8,), hidden_size=8, epochs=1),
}


def small(member: type[Learner], **settings) -> Learner:
    """Return a learner with the smallest settings it has."""
    known = {name: value for name, value in SMALL.items() if name in member.model_fields}
    if known["backbone"].kind not in member.backbones:
        known["backbone"] = OWN_BACKBONES.get(member, member().backbone)
    return member(**{**known, **settings})


def spec_of(agent: Learner) -> EnvSpec:
    """Return a small environment that suits the learner's actions and backbone."""
    if agent.is_discrete:
        return DISCRETE_SPEC
    return RESIDUAL_SPEC if agent.backbone.kind == "shared_asset" else SPEC


TUNERS = (DpoAgent,)  # need a policy and pairs; their own tests train them
DISCRETE_SPEC = SPEC.model_copy(update={"action": ChoiceAction(window=5)})
LEARNERS = {
    member().kind: small(member) for member in members(Agent) if issubclass(member, Learner) and member not in TUNERS
}
CLASSICAL = {member().kind: member() for member in members(Agent) if member.is_classical}
REGIME_SPEC = SPEC.model_copy(update={"observation": RegimeObservation()})
CASES = {
    **{kind: (spec_of(agent), agent) for kind, agent in LEARNERS.items()},
    "shared_asset": (RESIDUAL_SPEC, RESIDUAL_AGENT),
    "regime": (REGIME_SPEC, AGENT),
}


def endless(agent: PpoAgent) -> PpoAgent:
    """Return the learner with hours of training."""
    return agent.model_copy(update={"total_timesteps": 100_000_000})


def bits(fit: Fit) -> dict[str, bytes]:
    """Return the bytes of every trained tensor."""
    return {name: tensor.numpy().tobytes() for name, tensor in fit.tensors.items()}


def card_of(panel: MarketPanel, fit: Fit, spec=SPEC, agent=AGENT, **changes) -> PolicyCard:
    """Return the card of a small policy."""
    content = {
        "experiment": "small@00000000",
        "spec_hash": "0" * 64,
        "fold": 0,
        "seed": 0,
        "environment": spec,
        "agent": agent,
        "symbols": panel.symbols,
        "feature_names": panel.feature_names,
        "scaler": fit.scaler,
        "train_first": str(panel.sessions[WINDOW[0]]),
        "train_last": str(panel.sessions[WINDOW[1]]),
        "panel_digest": "1" * 64,
        "learning_curve": tuple(fit.curve),
    }
    return PolicyCard.model_validate({**content, **changes})
