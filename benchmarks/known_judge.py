"""A judge with a known utility, whose labels are flipped at a rate, and policies that are tuned to its pairs."""

import numpy as np
from safetensors.torch import save

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.agents import DpoAgent, Fit, PpoAgent, TrainingHooks
from nvtrader_pipelines.policies.agents.dpo_training import pair_gains
from nvtrader_pipelines.policies.preference_data import PreferenceData, Tuning
from nvtrader_pipelines.preferences.holdout_auc import HoldoutAuc, holdout_auc, orient

SPEC, WINDOW = EnvSpec(), (300, 2500)  # of the sample
START = PpoAgent(total_timesteps=4096)
AGENT = DpoAgent(start="0" * 16, pairs="0" * 64, labels="hard", learning_rate=1e-3)


def judged_pairs(panel: MarketPanel, n_pairs: int, flips: float, seed: int) -> PreferenceData:
    """Pairs of random portfolios at random sessions, chosen by a utility linear in the weights; a fifth is held out."""
    draw, n_weights = np.random.default_rng(seed), len(panel.symbols) + 1
    utility = np.random.default_rng(0).normal(size=n_weights)
    t = draw.integers(WINDOW[0], WINDOW[1], n_pairs)
    action = SPEC.action.start(panel)
    first, second = (action(draw.normal(size=(n_pairs, n_weights)), t) for _ in range(2))
    is_first = (first @ utility > second @ utility) ^ (draw.random(n_pairs) < flips)
    return PreferenceData(
        decided_at=t,
        held=draw.dirichlet(np.ones(n_weights), n_pairs),
        drawdown=np.zeros(n_pairs),
        chosen=np.where(is_first[:, None], first, second),
        rejected=np.where(is_first[:, None], second, first),
        flip=np.zeros(n_pairs),
        weight=np.ones(n_pairs),
        is_holdout=np.arange(n_pairs) % 5 == 0,
    )


def tune(panel: MarketPanel, start: Fit, pairs: PreferenceData, agent: DpoAgent, seed: int) -> Fit:
    """Tune a policy to pairs."""
    return agent.train(panel, SPEC, WINDOW, seed, TrainingHooks(start=_tuning(start, pairs)))


def clean_auc(panel: MarketPanel, start: Fit, tuned: Fit, seed: int) -> HoldoutAuc:
    """AUC of other pairs, whose labels are right."""
    pairs = judged_pairs(panel, 4000, 0.0, 1_000_000 + seed)
    gains = pair_gains(AGENT, SPEC, panel, _tuning(start, pairs), tuned.tensors)
    ids = [f"{number:016x}" for number in np.random.default_rng(seed).integers(0, 2**62, len(pairs))]
    return holdout_auc(*orient(gains, ids), np.arange(len(pairs)).astype("datetime64[D]"))


def robust(agent: DpoAgent, flips: float) -> DpoAgent:
    """The agent with the loss that is unbiased under flips at a known rate."""
    return agent.model_copy(update={"loss": "robust", "label_smoothing": flips})


def _tuning(start: Fit, pairs: PreferenceData) -> Tuning:
    return Tuning(start.scaler, save(start.tensors), "0" * 64, pairs)
