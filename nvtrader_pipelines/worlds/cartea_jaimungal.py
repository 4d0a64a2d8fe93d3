"""Market making and liquidation in closed form under penalties on the inventory, by Cartea & Jaimungal."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class Liquidation(NamedTuple):
    """Order to sell against linear impacts, in continuous time."""

    shares: float
    horizon: float  # time to sell them
    temporary_impact: float  # fall of a fill's price per unit of speed, k
    permanent_impact: float  # lasting fall of the price per share, b
    running_penalty: float  # on the square of the inventory per unit of time, phi
    terminal_penalty: float  # on the square of what is left at the end, alpha; above half of b


class Making(NamedTuple):
    """Market maker whose quotes fill at the rate of arrivals times exp(-fill_decay * distance)."""

    buy_rate: float  # orders per unit of time that hit the ask, lambda plus
    sell_rate: float  # orders that hit the bid, lambda minus
    fill_decay: float  # per unit of price, kappa
    running_penalty: float  # on the square of the inventory per unit of time, phi
    terminal_penalty: float  # on the square of the inventory at the end, alpha
    max_inventory: int  # at which the side that would add to it is not quoted


def liquidate(model: Liquidation, times: FloatArray) -> FloatArray:
    """Inventory and selling speed at each time from 0 to the horizon, (m, 2).

    Source: Cartea, Jaimungal & Penalva (2015), section 6.5.
    """
    rate = np.sqrt(model.running_penalty / model.temporary_impact)
    net = model.terminal_penalty - model.permanent_impact / 2.0
    root = np.sqrt(model.temporary_impact * model.running_penalty)
    zeta = (net + root) / (net - root)
    left = model.horizon - np.asarray(times)
    rising, falling = zeta * np.exp(rate * left), np.exp(-rate * left)
    scale = model.shares / (zeta * np.exp(rate * model.horizon) - np.exp(-rate * model.horizon))
    return np.stack([scale * (rising - falling), rate * scale * (rising + falling)], axis=1)


def inventory_values(model: Making, time_left: float) -> FloatArray:
    """Value of each inventory from -max_inventory to max_inventory, h, (2 max_inventory + 1,).

    Source: Cartea, Jaimungal & Penalva (2015), equation 10.11.
    """
    from scipy.linalg import expm  # a tenth of a second

    inventory = np.arange(-model.max_inventory, model.max_inventory + 1, dtype=np.float64)
    generator = np.diag(-model.running_penalty * model.fill_decay * inventory**2)
    generator += np.diag(np.full(len(inventory) - 1, model.buy_rate / np.e), -1)  # a sale leads to one less
    generator += np.diag(np.full(len(inventory) - 1, model.sell_rate / np.e), 1)
    ends = np.exp(-model.terminal_penalty * model.fill_decay * inventory**2)
    return np.log(expm(generator * time_left) @ ends) / model.fill_decay


def cartea_jaimungal_offsets(model: Making, time_left: float) -> FloatArray:
    """Distances of the bid below and of the ask above the price by inventory, (2 max_inventory + 1, 2).

    Infinite for the side that would exceed the limits.
    """
    gain = np.diff(inventory_values(model, time_left))
    bids, asks = 1.0 / model.fill_decay - gain, 1.0 / model.fill_decay + gain
    return np.stack([np.append(bids, np.inf), np.append(np.inf, asks)], axis=1)
