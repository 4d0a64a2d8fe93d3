"""A market as dense arrays over (session, symbol): all that environments, policies and baselines may see."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class MarketPanel:
    """Aligned arrays of one source; row `t` holds what is known at the close of `sessions[t]`.

    `close_returns[t]` is earned from the last known close before `t` to the close of `t`; where a symbol
    has no price at `t` it is 0 (the position is carried at its last price) and `tradable` is False.
    """

    source: str
    sessions: NDArray[np.datetime64]  # (T,) days, ascending
    symbols: tuple[str, ...]  # N names, sorted
    close_returns: NDArray[np.float64]  # (T, N) fractions
    overnight_returns: NDArray[np.float64] | None  # (T, N) last known close to open of t; None without opens
    tradable: NDArray[np.bool_]  # (T, N) a price is known at t
    delisted: NDArray[np.bool_]  # (T, N) once listed, now without a price for more than `max_gap` sessions
    eligible: NDArray[np.bool_]  # (T, N) tradable and every feature known: may be given weight
    features: NDArray[np.float64]  # (T, N, F), 0 where not eligible
    feature_names: tuple[str, ...]
    snapshot_ids: Mapping[str, int] = field(default_factory=dict)  # table name to Iceberg snapshot id

    def feature(self, name: str) -> NDArray[np.float64]:
        """One feature as (T, N).

        Raises:
            KeyError: if the panel has no such feature.
        """
        if name not in self.feature_names:
            known = ", ".join(self.feature_names)
            raise KeyError(f"the panel of {self.source!r} has no feature {name!r}; it has: {known}")
        return self.features[:, :, self.feature_names.index(name)]

    def index_of(self, session: np.datetime64) -> int:
        """The first index whose session is on or after the given day (T if there is none)."""
        return int(np.searchsorted(self.sessions, session))
