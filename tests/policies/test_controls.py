"""Controls of the learner: it finds a signal that is certainly there, and none where there certainly is none."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import lfilter

from nvtrader_pipelines.envs.actions import ChoiceAction
from nvtrader_pipelines.envs.observations import PerAssetObservation
from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.sharpe.deflation import deflated_sharpe_ratio
from nvtrader_pipelines.evaluation.sharpe.inference import (
    sharpe_moments,
)
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.market.calendar import NEW_YORK, TradingCalendar
from nvtrader_pipelines.policies.agents import (
    A2cAgent,
    ArsAgent,
    CmaEsAgent,
    CrossQAgent,
    DdpgAgent,
    DeepTraderAgent,
    DifferentiableGrpoAgent,
    DqnAgent,
    EiieAgent,
    InvestorImitatorAgent,
    MaskablePpoAgent,
    PathwiseAgent,
    PpoAgent,
    QrDqnAgent,
    RecurrentPpoAgent,
    SacAgent,
    SarlAgent,
    Td3Agent,
    TqcAgent,
    TrpoAgent,
)
from nvtrader_pipelines.policies.backbones import InvestorsBackbone, MlpBackbone, SagcnBackbone, SarlLstmBackbone
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.policies.learned import open_policy
from tests.markets import synthetic_panel
from tests.policies.small_learners import card_of

FOLD = Fold(0, 5, 690, 700, 999)
SPEC = EnvSpec(
    lookback=5, episode_len=20, rebal_freq=1, fill="same_close", rewards=(LogGrowth(weight=100.0),), vol_penalty=0.0
)
BUDGET = 8_192  # decisions on which PPO is trained, with the signal and without it
N_SEEDS, MOST_LUCKY = 20, 1
CALENDARS = [NEW_YORK, TradingCalendar("24/7")]
AGENT = PpoAgent(
    total_timesteps=BUDGET,
    n_envs=64,
    n_steps=16,
    batch_size=512,
    n_epochs=6,
    learning_rate=3e-3,
    gamma=0.0,
    log_std_init=0.0,
)
QUICK = {"gamma": 0.0, "backbone": MlpBackbone(hidden=(32,))}
ON_POLICY = {**QUICK, "total_timesteps": 8192, "learning_rate": 5e-3, "log_std_init": 0.0}
CLIPPED = {**ON_POLICY, "n_envs": 32, "n_steps": 16, "batch_size": 256, "n_epochs": 6}
OFF_POLICY = {**QUICK, "total_timesteps": 4096, "n_envs": 8, "batch_size": 64, "learning_starts": 500}
WINDOWS = {"total_timesteps": 10_240, "n_steps": 4, "learning_rate": 1e-2}  # decisions that a market plays
OTHERS = [
    A2cAgent(**ON_POLICY),
    RecurrentPpoAgent(**CLIPPED),
    *(member(**OFF_POLICY, learning_rate=3e-3) for member in (SacAgent, Td3Agent, DdpgAgent, TqcAgent, CrossQAgent)),
    TrpoAgent(**ON_POLICY, n_envs=32, batch_size=256, target_kl=0.03),
    ArsAgent(total_timesteps=100_000, learning_rate=0.1),
    CmaEsAgent(total_timesteps=100_000),
    SarlAgent(**{**OFF_POLICY, "learning_rate": 3e-3, "backbone": SarlLstmBackbone(hidden=(32,), epochs=1)}),
    *(member(**OFF_POLICY, learning_rate=3e-3) for member in (DqnAgent, QrDqnAgent)),
    MaskablePpoAgent(**{name: value for name, value in CLIPPED.items() if name != "log_std_init"}),
    DifferentiableGrpoAgent(total_timesteps=51_200, learning_rate=1e-2, backbone=MlpBackbone(hidden=(32,))),
    InvestorImitatorAgent(
        total_timesteps=16_384,
        n_steps=16,
        learning_rate=5e-3,
        backbone=InvestorsBackbone(hidden=(32,), descriptor_hidden=16, epochs=1),
    ),
    PathwiseAgent(**WINDOWS, backbone=MlpBackbone(hidden=(32,))),
    EiieAgent(**WINDOWS, n_envs=64),
    DeepTraderAgent(**{**WINDOWS, "total_timesteps": 7680}, backbone=SagcnBackbone(n_layers=2, dropout=0.0)),
]
EVERY = pytest.mark.parametrize("agent", OTHERS, ids=lambda agent: agent.kind)
PERSISTENCE = 0.6  # autocorrelation of a trending market
GAIN = 0.3  # log growth over that of 1/N in 300 sessions; a choice of portfolios can gain .6


def market(calendar=NEW_YORK):
    """Names with the same mean return, and as their one feature the return that a decision now will earn."""
    panel = synthetic_panel(1000, 4, seed=5, opens=False, calendar=calendar)
    returns = np.random.default_rng(0).permuted(panel.close_returns - panel.close_returns.mean(axis=0), axis=0)
    tomorrow = np.roll(returns, -1, axis=0)  # what a decision earns that is filled at its own close
    return replace(panel, close_returns=returns, features=tomorrow[:, :, None], feature_names=("signal",))


def per_asset_market():
    """The market with the features of the per-asset observation, tomorrow's return in place of the latest."""
    panel, usual = market(), synthetic_panel(1000, 4, seed=5, opens=False)
    features = usual.features.copy()
    features[:, :, usual.feature_names.index("return_1")] = panel.features[:, :, 0]
    return replace(panel, features=features, feature_names=usual.feature_names)


def trending_market():
    """Names whose only signal is their latest return: a share of it returns in the next session."""
    panel = synthetic_panel(1000, 4, seed=5, opens=False)
    shocks = panel.close_returns - panel.close_returns.mean(axis=0)
    returns = lfilter([np.sqrt(1.0 - PERSISTENCE**2)], [1.0, -PERSISTENCE], shocks, axis=0)  # as volatile as shocks
    return replace(panel, close_returns=returns - returns.mean(axis=0))


def shuffled(panel, seed):
    """The same features before the same sessions' returns in another order."""
    return replace(panel, close_returns=np.random.default_rng(seed).permutation(panel.close_returns, axis=0))


def returns_out_of_sample(panel, seed, agent=AGENT, spec=SPEC):
    """Net returns of the trained policy and of 1/N in 300 sessions after its training."""
    fit = agent.train(panel, spec, (FOLD.train_first, FOLD.train_last), seed)
    learned = open_policy(card_of(panel, fit, spec, agent), fit.tensors, panel)
    policy_accounts = [
        PolicyAccount("learner", "policy", (seed,), (learned,)),
        PolicyAccount("equal_weight", "baseline", (None,), (EqualWeight().start(),)),
    ]
    curves = backtest(panel, spec, [FOLD], policy_accounts).equity_curves.partition_by("policy", as_dict=True)
    return tuple(curves[(who.name,)]["net_return"].to_numpy() for who in policy_accounts)


def excess_growth(agent, panel, seed=0, spec=SPEC):
    """Log growth of the policy over that of 1/N, net of costs."""
    own, equal = returns_out_of_sample(panel, seed, agent, spec)
    return np.log1p(own).sum() - np.log1p(equal).sum()


def suited(agent):
    """The market with the signal and the environment, as the agent's backbone and actions need them."""
    if agent.is_discrete:
        return market(), SPEC.model_copy(update={"action": ChoiceAction(window=5)})
    if agent.kind in ("eiie", "deeptrader"):  # read no features; short names would double what luck gains over 1/N
        return trending_market(), SPEC
    if agent.backbone.kind == "shared_asset":
        return per_asset_market(), SPEC.model_copy(update={"observation": PerAssetObservation()})
    return market(), SPEC


def active_moments(panel, seed):
    """Moments of the returns over those of 1/N, free of costs: they would hide a skill, and hide luck."""
    own, equal = returns_out_of_sample(panel, seed, spec=SPEC.model_copy(update={"turnover_cost_bps": 0.0}))
    return sharpe_moments(own - equal)


@pytest.mark.slow
@pytest.mark.parametrize("calendar", CALENDARS, ids=lambda calendar: calendar.name)
def test_ppo_beats_equal_weights_given_tomorrows_return(calendar):
    assert AGENT.total_timesteps == BUDGET
    assert excess_growth(AGENT, market(calendar)) > 1.0


@pytest.mark.nightly
@EVERY
def test_library_learner_beats_equal_weights_given_tomorrows_return(agent):
    panel, spec = suited(agent)
    assert excess_growth(agent, panel, spec=spec) > GAIN


@pytest.mark.nightly
@EVERY
def test_library_learner_gains_on_shuffled_returns_by_none_of_five_seeds(agent):
    panel, spec = suited(agent)
    free = spec.model_copy(update={"turnover_cost_bps": 0.0})  # costs would hide luck
    assert max(excess_growth(agent, shuffled(panel, seed), seed, free) for seed in range(5)) < GAIN


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("calendar", CALENDARS, ids=lambda calendar: calendar.name)
def test_learner_finds_no_skill_in_shuffled_returns(calendar):
    trials = [active_moments(shuffled(market(calendar), seed), seed) for seed in range(N_SEEDS)]
    variance = float(np.var([moments.sharpe for moments in trials], ddof=1))
    deflated = [deflated_sharpe_ratio(moments, N_SEEDS, variance) for moments in trials]
    assert sum(ratio >= 0.95 for ratio in deflated) <= MOST_LUCKY
    # luck alone is one deviation of 1 / sqrt(300) a session, so the seeds did trade, and on nothing
    assert np.sqrt(variance * 300) == pytest.approx(1.0, abs=0.4)
    # and the same measure finds the signal that is there
    assert deflated_sharpe_ratio(active_moments(market(calendar), 0), N_SEEDS, variance) > 0.999
