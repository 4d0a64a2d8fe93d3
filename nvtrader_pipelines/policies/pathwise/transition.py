"""Differentiable transition of an account: the arithmetic of `envs/transition.py` in PyTorch.

| here | there |
|---|---|
| `MarketTensors` | `Legs` of `envs/dynamics.py`, and the cost models as coefficients |
| `hold` | `hold_rows` where every portfolio trades, and `dynamics.hold`, which takes the cost of the fill |
| `_drift`, `_drift_on` | `_drift`: returns, charges, and ruin at a growth of 0 |
| `_trade` | `_trade`: frozen names, write-offs, room beside them, turnover |
| `_cap_gross` | `_track_close`, `_cap_gross` and `pay_cap_costs`: the cap on gross at a close and its cost |

Values are equal up to rounding. Branches are selections by row: the gradient is that of the branch taken, and 0 through
a cost cut at 1 and through ruin.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from nvtrader_pipelines.envs.accounts import environment_legs
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.envs.transition import AFTER_FILL, BEFORE_FILL, BORROW, EXCESS, MARGIN, ROUNDING, WHOLE
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import total_coefficients


@dataclass(frozen=True, eq=False)
class MarketTensors:
    """Returns, charges and costs of one panel under one environment, float64."""

    returns: Tensor  # (3, T, N) fractions: before the fill, after it, the whole session
    charges: Tensor  # (3, T, 3) fractions of borrowed cash, short value, gross above 1, on the same three legs
    tradable: Tensor  # (T, N) bool, at a fill and at a close
    delisted: Tensor  # (T, N) bool
    linear_cost: Tensor  # (T, N) per |dw|, by session of the fill
    root_cost: Tensor  # (T, N) per |dw|^1.5, by session of the fill
    fill_lag: int  # sessions from a decision to its fill
    close_cap: float  # of gross at a close; infinite without a cap
    fill_cap: float  # of gross at a fill

    @classmethod
    def of(cls, panel: MarketPanel, environment: EnvSpec) -> Self:
        """Return the tensors of a panel under the fills, financing, cap and costs of an environment.

        Raises:
            ValueError: if a cost model has no coefficients.
        """
        legs = environment_legs(panel, environment)
        cost = total_coefficients(environment.cost_models, panel)
        arrays = (legs.returns, legs.charges, panel.tradable, panel.delisted, cost.linear, cost.root)
        return cls(
            *map(torch.tensor, arrays),
            fill_lag=0 if legs.fill == "same_close" else 1,
            close_cap=legs.close_cap,
            fill_cap=math.inf if legs.fill == "next_open" else legs.close_cap,
        )

    def to(self, device: torch.device) -> Self:
        """Return the tensors on a device."""
        moved = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **moved)

    def cost(self, trades: Tensor, at: Tensor, smoothing: float) -> Tensor:
        """Cost (n,), at most 1, of changes of the names' weights (n, N) at sessions (n,)."""
        size = smooth_abs(trades, smoothing)
        return (self.linear_cost[at] * size + self.root_cost[at] * size**1.5).sum(dim=1).clamp(max=1.0)


class Holding(NamedTuple):
    """Result of one decision of n portfolios over the k sessions until the next."""

    weights: Tensor  # (n, N+1) at the last close, cash last
    growth: Tensor  # (n, k) equity over the previous session's, net of costs
    turnover: Tensor  # (n,) one-way, of the trade to the target


def hold(
    market: MarketTensors,
    weights: Tensor,
    target: Tensor,
    decided_at: Tensor,
    n_sessions: int,
    smoothing: float = 0.0,
) -> Holding:
    """Trade n portfolios once and hold them for `n_sessions`, differentiable in weights and targets.

    Args:
        market: tensors of the panel.
        weights: (n, N+1) at the close of the decision, cash last, rows sum to 1.
        target: (n, N+1) target weights, cash last, rows sum to 1.
        decided_at: (n,) sessions of the decisions.
        n_sessions: sessions to hold.
        smoothing: of |dw| in costs and turnover, see `smooth_abs`; 0 for the environment's values.

    Raises:
        IndexError: if the period of a portfolio ends beyond the panel.
    """
    n_panel = market.returns.shape[1]
    if n_sessions < 1 or (decided_at < 0).any() or (decided_at + n_sessions >= n_panel).any():
        raise IndexError(
            f"1 or more sessions after each decision must be in the panel of {n_panel}, but {n_sessions} after "
            f"sessions {int(decided_at.min())} to {int(decided_at.max())} are not; decide earlier"
        )
    return hold_unchecked(market, weights, target, decided_at, n_sessions, smoothing)


def hold_unchecked(
    market: MarketTensors, weights: Tensor, target: Tensor, decided_at: Tensor, n_sessions: int, smoothing: float
) -> Holding:
    """Do as `hold` for sessions that are known to be in the panel: without a look at values, a GPU need not wait."""
    filled_at, path = decided_at + market.fill_lag, []
    drifted, growth = _drift(market, weights, BEFORE_FILL, decided_at + 1)
    held, trades = _trade(market, drifted, target, growth > 0.0, filled_at)
    growth = growth * (1.0 - market.cost(trades, filled_at, smoothing))
    turnover = 0.5 * (smooth_abs(trades, smoothing).sum(dim=1) + smooth_abs(trades.sum(dim=1), smoothing))
    if math.isinf(market.close_cap):  # accounts neither borrow nor sell short
        held, kept = _drift_on(market, held, decided_at, n_sessions)
        return Holding(held, torch.cat([growth[:, None] * kept[:, :1], kept[:, 1:]], dim=1), turnover)
    for session in range(1, n_sessions + 1):
        at = decided_at + session
        held, grown = _drift(market, held, AFTER_FILL if session == 1 else WHOLE, at)
        if math.isfinite(market.close_cap):
            held, kept = _cap_gross(market, held, at, smoothing)
            grown = grown * kept
        path.append(growth * grown if session == 1 else grown)
    return Holding(held, torch.stack(path, dim=1), turnover)


def smooth_abs(values: Tensor, smoothing: float) -> Tensor:
    """Absolute values, made differentiable at 0 as sqrt(x^2 + smoothing) - sqrt(smoothing).

    The root is subtracted so that no trade costs 0. Without smoothing, the slope at 0 is 0.

    Source: lee101/stock-prediction (differentiable_market), sqrt(x^2 + 1e-6); the subtraction is our choice.
    """
    return values.abs() if smoothing == 0.0 else (values.square() + smoothing).sqrt() - math.sqrt(smoothing)


def soft_drawdown(log_wealth: Tensor, temperature: float = 10.0) -> Tensor:
    """Mean of the soft running maximum less log wealth (n, S), (n,); positive log returns.

    The maximum is log-sum-exp at `temperature`: too high by at most log(S) / `temperature`, which a constant path of
    S sessions reaches. Begin the path with the wealth at the start for losses from it.

    Source: lee101/stock-prediction (differentiable_market); the mean over sessions is our choice.
    """
    peak = torch.logcumsumexp(temperature * log_wealth, dim=1) / temperature
    return (peak - log_wealth).mean(dim=1)


def _drift(market: MarketTensors, weights: Tensor, leg: int, at: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (n, N+1) after a leg's returns and charges, and growth (n,): 0, and cash, if all is lost."""
    names, cash, charges = weights[:, :-1], weights[:, -1], market.charges[leg, at]
    short = (-names).relu().sum(dim=1)
    charge = charges[:, MARGIN] * (-cash).relu() + charges[:, BORROW] * short
    charge = charge + charges[:, EXCESS] * (2.0 * short - cash).relu()  # gross above 1
    grown = torch.cat([names * (1.0 + market.returns[leg, at]), (cash - charge)[:, None]], dim=1)
    growth = grown.sum(dim=1)
    is_ruined = growth <= 0.0
    drifted = grown / torch.where(is_ruined, 1.0, growth)[:, None]
    return torch.where(is_ruined[:, None], _only_cash(grown), drifted), torch.where(is_ruined, 0.0, growth)


def _drift_on(market: MarketTensors, weights: Tensor, decided_at: Tensor, n_sessions: int) -> tuple[Tensor, Tensor]:
    """Do as `_drift` from the fill over all sessions (k) at once, without charges: weights (n, N+1), growth (n, k)."""
    at = decided_at[:, None] + torch.arange(1, n_sessions + 1, device=decided_at.device)
    returns = torch.cat([market.returns[AFTER_FILL, at[:, :1]], market.returns[WHOLE, at[:, 1:]]], dim=1)
    cash = weights[:, -1:, None].expand(-1, n_sessions, -1)
    grown = torch.cat([weights[:, None, :-1] * (1.0 + returns).cumprod(dim=1), cash], dim=2)  # (n, k, N+1)
    equity = grown.sum(dim=2)
    is_ruined = (equity <= 0.0).cumsum(dim=1) > 0
    equity = torch.where(is_ruined, 1.0, equity)  # a ruined account keeps its unit of cash
    before = torch.cat([torch.ones_like(equity[:, :1]), equity[:, :-1]], dim=1)
    is_new = is_ruined & ~torch.cat([torch.zeros_like(is_ruined[:, :1]), is_ruined[:, :-1]], dim=1)
    drifted = torch.where(is_ruined[:, -1:], _only_cash(weights), grown[:, -1] / equity[:, -1:])
    return drifted, torch.where(is_ruined, 1.0 - is_new.double(), equity / before)


def _only_cash(weights: Tensor) -> Tensor:
    """Weights (N+1,) of an account without names."""
    only_cash = torch.zeros_like(weights[0])
    only_cash[-1] = 1.0
    return only_cash


def _trade(
    market: MarketTensors, drifted: Tensor, target: Tensor, is_trading: Tensor, at: Tensor
) -> tuple[Tensor, Tensor]:
    """Weights (n, N+1) after the trade, and changes of the names' weights (n, N); a write-off is no trade."""
    before, wanted, delisted = drifted[:, :-1], target[:, :-1], market.delisted[at]
    is_traded = is_trading[:, None] & market.tradable[at]
    names = torch.where(is_traded, wanted, torch.where(delisted, 0.0, before))
    borrowed = torch.where(is_trading, (-target[:, -1]).relu(), 0.0)
    is_long = (torch.cat([drifted, names, -borrowed[:, None]], dim=1) >= 0.0).all(dim=1)
    is_by_gross = (names < 0.0).any(dim=1) | math.isfinite(market.fill_cap)
    gross_wanted = torch.where(is_trading, wanted.abs().sum(dim=1), 0.0)
    gross = torch.maximum(1.0 + borrowed, gross_wanted).clamp(max=market.fill_cap)
    limit = torch.where(is_by_gross, gross, 1.0 + borrowed)
    size = torch.where(is_by_gross[:, None], names.abs(), names)
    total = torch.where(is_traded, size, 0.0).sum(dim=1)
    room = (limit - torch.where(is_traded, 0.0, size).sum(dim=1)).relu()
    scale = torch.where(total > room, room / torch.where(total > room, total, 1.0), 1.0)
    names = torch.where(is_traded, names * scale[:, None], names)
    cash = 1.0 - names.sum(dim=1) - torch.where(is_trading, 0.0 * target.sum(dim=1), 0.0)  # a NaN is preserved
    # rounding must not leave a long-only account in debt; the gradient is that of the sum
    cash = cash - torch.where(is_long & (cash <= 0.0) & (cash > -ROUNDING), cash, 0.0).detach()
    return torch.cat([names, cash[:, None]], dim=1), torch.where(delisted, 0.0, names - before)


def _cap_gross(market: MarketTensors, held: Tensor, at: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Weights (n, N+1) scaled to the cap on gross at a close, and the growth (n,) that the cost leaves.

    Names without a price keep their weight, so that the others are scaled by more.
    """
    names, cash, tradable = held[:, :-1], held[:, -1], market.tradable[at]
    gross = 1.0 - cash + 2.0 * (-names).relu().sum(dim=1)
    frozen = torch.where(tradable, 0.0, names.abs()).sum(dim=1)
    is_scaled = (gross > market.close_cap) & (frozen < gross)
    room = (market.close_cap - frozen).relu()
    share = torch.where(is_scaled, room / torch.where(is_scaled, gross - frozen, 1.0), 1.0)
    change = torch.where(tradable, (share - 1.0)[:, None] * names, 0.0)
    names = names + change
    capped = torch.cat([names, torch.where(gross > market.close_cap, 1.0 - names.sum(dim=1), cash)[:, None]], dim=1)
    return capped, 1.0 - market.cost(change, at, smoothing)
