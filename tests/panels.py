"""Panels with gaps, late listings and delistings, and panels with another future."""

from dataclasses import replace

import numpy as np

from nvtrader_pipelines.market.panel import MarketPanel
from tests.markets import synthetic_panel

STEADY, GAPPY, LATE, DELISTED, INELIGIBLE, NEVER = range(6)  # columns of an eventful panel
LISTED_AT, FIRST_ELIGIBLE, GAP, LAST_PRICE, MAX_GAP = 40, 50, (30, 33), 60, 5
ARRAYS = ("close_returns", "overnight_returns", "tradable", "delisted", "eligible", "features")


def eventful_panel(n_sessions=160, seed=0, *, opens=True) -> MarketPanel:
    """Build a panel of six names: steady, gappy, listed late, delisted, ineligible, unpriced."""
    panel = synthetic_panel(n_sessions, 6, seed, opens=opens)
    tradable = panel.tradable.copy()
    tradable[GAP[0] : GAP[1], GAPPY] = False
    tradable[:LISTED_AT, LATE] = False
    tradable[LAST_PRICE + 1 :, DELISTED] = False
    tradable[:, NEVER] = False
    eligible = tradable.copy()
    eligible[:FIRST_ELIGIBLE, LATE] = False
    eligible[:, INELIGIBLE] = False
    delisted = np.zeros_like(tradable)
    delisted[LAST_PRICE + MAX_GAP + 1 :, DELISTED] = True
    close_returns = np.where(tradable, panel.close_returns, 0.0)
    close_returns[LISTED_AT, LATE] = 0.0  # nothing is earned before the first price
    return replace(
        panel,
        close_returns=close_returns,
        overnight_returns=np.where(tradable, panel.overnight_returns, 0.0) if opens else None,
        tradable=tradable,
        delisted=delisted,
        eligible=eligible,
        features=np.where(eligible[:, :, None], panel.features, 0.0),
    )


def with_other_future(panel: MarketPanel, t: int, seed=99) -> MarketPanel:
    """Replace everything after session `t` by noise."""
    generator = np.random.default_rng(seed)
    changed = {}
    for name in ARRAYS:
        values = getattr(panel, name)
        if values is None:
            continue
        values = values.copy()
        after = values[t + 1 :]
        after[...] = (
            generator.random(after.shape) < 0.5 if values.dtype == bool else generator.normal(0, 0.2, after.shape)
        )
        if name.endswith("returns"):
            np.clip(after, -0.9, None, out=after)
        changed[name] = values
    return replace(panel, **changed)


def cut(panel: MarketPanel, t: int) -> MarketPanel:
    """Cut the panel at the close of session `t`."""
    arrays = {name: getattr(panel, name) for name in ARRAYS}
    known = {name: None if values is None else values[: t + 1] for name, values in arrays.items()}
    return replace(panel, sessions=panel.sessions[: t + 1], **known)
