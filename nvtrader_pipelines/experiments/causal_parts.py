"""Refusal of an experiment whose parts from installed packages fail or look ahead."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nvtrader_pipelines.components.component import Component, kind_of
from nvtrader_pipelines.components.family import PartError, failure_reason
from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.experiments.code_digest import PACKAGE, classes_of
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.look_ahead import LookAheadError, with_other_future
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.baselines import ClassicalAgent
from nvtrader_pipelines.portfolio.costs import total_cost
from nvtrader_pipelines.portfolio.pipeline import Situation
from nvtrader_pipelines.portfolio.pipeline.stage import Thresholds, add_cash

N_PORTFOLIOS = 4
N_STEPS = 3  # decisions before each cut
SHARES = (0.4, 0.6, 0.8)  # of the sessions, after which the future is replaced
FITTED = Thresholds(turbulence=1e9, drawdown=0.5, trailing_return=-0.5, turnover=0.5)


def parts_of(spec: Any) -> set[type[Component]]:
    """Classes of installed packages among the components of a spec."""
    return {part for part in classes_of(spec) if part.__module__.partition(".")[0] != PACKAGE}


def require_causal_parts(spec: ExperimentSpec, panel: MarketPanel) -> None:
    """Raise if observations, rewards, costs or decisions fail, or change with the market's future.

    Experiments without parts of installed packages are not checked. Features are checked where they are computed.

    Raises:
        LookAheadError: with what changed and the session.
        PartError: if the parts fail in a trial, or give numbers that are not finite.
    """
    if not parts_of(spec):
        return
    parts = ", ".join(sorted(part.__qualname__ for part in parts_of(spec)))
    for share in SHARES:
        t = int(share * len(panel.sessions))
        try:
            known, other = (dict(_outcomes(spec, history, t)) for history in (panel, with_other_future(panel, t)))
        except Exception as error:  # a package's own code
            raise PartError(
                f"the parts {parts} must run on the market, but fail in a trial of {N_STEPS} steps "
                f"({failure_reason(error)}); test each with nvtrader_pipelines.testing"
            ) from error
        for name, value in known.items():
            if not np.isfinite(value).all():
                raise PartError(f"the parts {parts} must give finite numbers, but the {name} is not finite")
            if not np.array_equal(value, other[name]):
                raise LookAheadError(
                    f"the parts {parts} must not look ahead, but the {name} changes when the market after "
                    f"{panel.sessions[t]} is replaced; compute it from sessions up to then"
                )


def _outcomes(spec: ExperimentSpec, panel: MarketPanel, t: int) -> Iterator[tuple[str, Any]]:
    """Yield targets, costs, rewards, observations and decisions up to session `t`, by name."""
    from nvtrader_pipelines.envs.simulation import PortfolioSimulation, fit_scaler  # numba takes long to import

    env, generator = spec.environment, np.random.default_rng(0)
    first = max(0, t - N_STEPS * env.rebal_freq)
    scaler = fit_scaler(panel, env.observation, ((0, t),))
    simulation = PortfolioSimulation(
        panel, env, N_PORTFOLIOS, first=first, last=t, scaler=scaler, pipeline=spec.pipeline
    )
    simulation.accounts.open(list(range(N_PORTFOLIOS)), [first] * N_PORTFOLIOS)
    length = env.action.size(len(panel.symbols)).length
    for number in range((t - first) // env.rebal_freq):
        step = simulation.step(generator.normal(0.0, 2.0, (N_PORTFOLIOS, length)))
        yield f"reward of step {number}", step.reward
        yield f"observation after step {number}", step.observation
    now = np.full(N_PORTFOLIOS, t)
    held, equity = simulation.accounts.weights, simulation.accounts.equity
    weights = env.start_action(panel)(generator.normal(0.0, 2.0, (N_PORTFOLIOS, length)), now, held, equity)
    yield "target", weights
    yield "cost of the next fill", total_cost(env.cost_models, panel)(weights[:, :-1], now + 1)
    proposal, rules = simulation.accounts.weights[0], [spec.agent, *spec.all_baselines]
    account = opening_account(len(panel.symbols))
    situation = Situation(panel, t, account.weights, 0.0, np.zeros(63), FITTED, rebal_freq=5)
    yield "weights of the pipeline", spec.pipeline.start(panel)(_eligible(proposal, panel, t), situation).weights
    for rule in rules:
        if isinstance(rule, ClassicalAgent) and parts_of(rule):
            target = rule.start().decide(panel, t, account).target
            yield f"decision of {kind_of(type(rule))}", np.zeros(0) if target is None else target


def _eligible(weights: np.ndarray, panel: MarketPanel, t: int) -> np.ndarray:
    """Move the weights of ineligible names to cash."""
    names = np.where(panel.eligible[t], np.maximum(weights[:-1], 0.0), 0.0)
    return add_cash(names)
