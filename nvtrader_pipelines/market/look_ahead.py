"""Look-ahead checks: markets with another future, and features that depend on it."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.family import PartError, failure_reason
from nvtrader_pipelines.market.history import PriceHistory
from nvtrader_pipelines.market.panel import PANEL_ARRAYS, MarketPanel, Window, map_arrays, window_mask
from nvtrader_pipelines.market.series import SeriesUnavailable


class LookAheadError(ValueError):
    """Component whose past values depend on later sessions."""


class _Feature(Protocol):
    @property
    def name(self) -> str: ...

    def values(self, history: PriceHistory) -> NDArray[np.float64]: ...


def cut_after(panel: MarketPanel, t: int) -> MarketPanel:
    """Cut a panel at the close of session `t`; the arrays are views."""
    return map_arrays(panel, lambda array: array[: t + 1], sessions=panel.sessions[: t + 1])


def hide_outside(panel: MarketPanel, windows: Sequence[Window]) -> MarketPanel:
    """Set every array to 0 or False outside the windows, as where no name has a price."""
    outside = ~window_mask(windows, len(panel.sessions))

    def hide(array: NDArray[Any]) -> NDArray[Any]:
        hidden = array.copy()
        hidden[outside] = 0
        return hidden

    return map_arrays(panel, hide)


def with_other_future(panel: MarketPanel, t: int, seed: int = 99) -> MarketPanel:
    """Replace every array after session `t` by noise."""
    generator = np.random.default_rng(seed)
    changed = {}
    for name in PANEL_ARRAYS:
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


def cut_history(history: PriceHistory, t: int) -> PriceHistory:
    """Cut a price history at the close of session `t`."""
    values = {field.name: getattr(history, field.name) for field in fields(history)}
    arrays = {name: value[: t + 1] for name, value in values.items() if isinstance(value, np.ndarray)}
    return replace(history, **arrays, series={name: array[: t + 1] for name, array in history.series.items()})


def require_causal_feature(feature: _Feature, history: PriceHistory, cuts: Sequence[int] = ()) -> None:
    """Raise if values of a feature change when later sessions are removed.

    Raises:
        PartError: if the feature fails.
        SeriesUnavailable: if an outside series that it reads is missing or has a gap.
        LookAheadError: with the feature, the last session left and the number of values that changed.
    """
    n_sessions = len(history.sessions)
    known = _values(feature, history)
    for t in cuts or (n_sessions // 3, 2 * n_sessions // 3, n_sessions - 2):
        past, found = known[: t + 1], _values(feature, cut_history(history, t))
        changed = ~((past == found) | (np.isnan(past) & np.isnan(found)))
        if changed.any():
            raise LookAheadError(
                f"the feature {feature.name} must not look ahead, but {int(changed.sum())} of its values up to "
                f"{history.sessions[t]} change when later sessions are removed; compute each value from its own "
                "session and earlier ones"
            )


def _values(feature: _Feature, history: PriceHistory) -> NDArray[np.float64]:
    try:
        return feature.values(history)
    except SeriesUnavailable:
        raise
    except Exception as error:  # a package's own code
        raise PartError(
            f"the feature {feature.name} must run on the market's prices, but fails ({failure_reason(error)}); test it "
            "with nvtrader_pipelines.testing"
        ) from error
