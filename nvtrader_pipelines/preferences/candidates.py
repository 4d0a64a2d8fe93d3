"""Candidates at past rebalances: what a policy and rules propose, each on an account of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.policy import Policy
from nvtrader_pipelines.preferences.decisions import HORIZON

N_PERTURBED, PERTURBATION = 2, 0.5  # candidates around the policy's, by this deviation of log weights; our choice


@dataclass(frozen=True, eq=False)
class Rebalances:
    """D rebalances of an account: its state at each close, and what a policy proposes there."""

    decided_at: NDArray[np.int64]  # (D,) session index
    held: FloatArray  # (D, N+1) weights, cash last
    drawdown: FloatArray  # (D,)
    target: FloatArray  # (D, N+1); the held weights where the policy does not trade
    observation_hash: Sequence[int | None]


def rebalances_within(windows: Sequence[Window], rebal_freq: int) -> list[NDArray[np.int64]]:
    """Sessions of rebalances in each window whose outcome it contains; windows that overlap have the same."""
    return [
        np.arange(-(-first // rebal_freq) * rebal_freq, last - HORIZON + 1, rebal_freq, dtype=np.int64)
        for first, last in windows
    ]


def without_learning(env: EnvSpec) -> EnvSpec:
    """Environment with the same accounts, and the same for all that only learn from them in another way."""
    learning = {"observation", "lookback", "episode_len", "terminations", "stop_properly", "pipeline"}
    defaults = {name: EnvSpec.model_fields[name].default for name in learning}
    return env.model_copy(update={**defaults, "rewards": (LogGrowth(),), "vol_penalty": 0.0})


def walk_rebalances(
    panel: MarketPanel, env: EnvSpec, policy: Policy, sessions: Sequence[NDArray[np.int64]]
) -> Rebalances:
    """Walk a policy on an account that opens anew in cash before each stretch of sessions of rebalances."""
    rows: list[tuple[int, FloatArray, float, FloatArray, int | None]] = []
    for stretch in sessions:
        accounts = Accounts(panel, env, 1, t=int(stretch[0])) if len(stretch) else None
        for t in stretch.tolist():
            assert accounts is not None
            account = accounts.account(0)
            decision = policy.decide(panel, t, account)
            target = account.weights if decision.target is None else decision.target
            rows.append((t, account.weights.copy(), account.drawdown, target, decision.observation_hash))
            if t < stretch[-1]:
                accounts.trade(target[None], np.array([decision.target is not None]), env.rebal_freq)
    if not rows:
        raise ValueError(
            f"pairs need rebalances whose outcome lies in the training, {HORIZON} sessions later, but it has none; "
            "train on more sessions"
        )
    t, held, drawdown, target, hashes = zip(*rows, strict=True)
    return Rebalances(np.array(t), np.stack(held), np.array(drawdown), np.stack(target), hashes)


def perturbed(target: FloatArray, seed: Sequence[int]) -> Mapping[str, FloatArray]:
    """Candidates around target weights (D, N+1): log weights with normal noise, the same names held."""
    shape = (len(target), N_PERTURBED, target.shape[1])  # noise of a rebalance does not depend on later ones
    weights = target[:, None] * np.exp(PERTURBATION * np.random.default_rng(seed).standard_normal(shape))
    weights /= weights.sum(axis=2, keepdims=True)
    return {f"perturbed-{number}": weights[:, number] for number in range(N_PERTURBED)}
