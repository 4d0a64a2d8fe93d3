"""Maps of `envs/actions.py` from raw actions to target weights, in PyTorch."""

from collections.abc import Callable

import torch
from torch import Tensor

from nvtrader_pipelines.envs.actions import (
    Action,
    LeveredSimplexAction,
    LongShortAction,
    ResidualAction,
    SimplexAction,
)
from nvtrader_pipelines.market.panel import MarketPanel

TensorMap = Callable[[Tensor, Tensor], Tensor]  # raw actions (n, A) and sessions (n,) to weights (n, N+1), cash last
MAPPED = (SimplexAction, ResidualAction, LeveredSimplexAction, LongShortAction)


def start_map(action: Action, panel: MarketPanel, device: torch.device | None = None) -> TensorMap:
    """Return the map of an action for one panel on a device, differentiable in the raw actions, float64.

    Raises:
        ValueError: if the action has no such map.
    """
    eligible = torch.tensor(panel.eligible, device=device)
    match action:
        case SimplexAction():
            return lambda actions, t: with_cash(_shares(actions, action.bound)[:, :-1] * eligible[t])
        case ResidualAction():
            return _residual_map(action, panel, device)
        case LeveredSimplexAction():

            def levered(actions: Tensor, t: Tensor) -> Tensor:
                leverage = actions[:, -1:].double().clamp(-action.bound, action.bound).sigmoid()
                gross = action.base + (action.intraday_cap - action.base) * leverage
                return with_cash(gross * _shares(actions[:, :-1], action.bound) * eligible[t])

            return levered
        case LongShortAction():

            def net(actions: Tensor, t: Tensor) -> Tensor:
                long, short = _shares(actions, action.bound).chunk(2, dim=1)
                return with_cash(action.gross * (long - short) * eligible[t])

            return net
        case _:
            raise ValueError(
                f"environment.action: found {action.kind}, whose weights have no gradient; choose one of "
                f"{', '.join(member.model_fields['kind'].default for member in MAPPED)}"
            )


def _residual_map(action: ResidualAction, panel: MarketPanel, device: torch.device | None) -> TensorMap:
    anchor = torch.tensor(action.anchor.weights(panel)[:, :-1], device=device)
    tilts = torch.full((len(panel.symbols) + 1,), action.tilt, dtype=torch.float64, device=device)
    tilts[-1] = action.exposure_tilt

    def residual(actions: Tensor, t: Tensor) -> Tensor:
        factors = (tilts * actions.double().clamp(-action.bound, action.bound).tanh()).exp()
        names, exposure = factors[:, :-1] * anchor[t], anchor[t].sum(dim=1, keepdim=True) * factors[:, -1:]
        total = names.sum(dim=1, keepdim=True)
        return with_cash(names * exposure.clamp(max=1.0) / torch.where(total > 0.0, total, 1.0))

    return residual


def _shares(actions: Tensor, bound: float) -> Tensor:
    return actions.double().clamp(-bound, bound).softmax(dim=1)


def with_cash(names: Tensor) -> Tensor:
    """Append cash to weights of names (n, N), so that rows sum to 1."""
    return torch.cat([names, 1.0 - names.sum(dim=1, keepdim=True)], dim=1)
