"""Where a stress test is played: a market, the sessions on which policies may be judged, the worlds made of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.splits import Block
from nvtrader_pipelines.evaluation.stress.prices import Prices
from nvtrader_pipelines.market.features import compute_features
from nvtrader_pipelines.market.panel import MarketPanel, build_panel

CALM = "calm"  # the name of the world without any stress
NOBODY = -1


class NoWorldError(ValueError):
    """A scenario that a market, or what may be judged on it, cannot hold."""


@dataclass(frozen=True)
class OutOfSample:
    """Sessions on which the policies of a fold may be judged, and the spans of sessions they were trained on.

    Raises:
        ValueError: if a session is in both.
    """

    fold: int
    first: date
    last: date
    trained: tuple[tuple[date, date], ...] = ()  # first and last session of each span; none for what never learns

    def __post_init__(self) -> None:
        """Look for overlaps."""
        for first, last in self.trained:
            if first <= self.last and self.first <= last:
                raise ValueError(
                    f"the policies of fold {self.fold} were trained on sessions from {first} to {last} and may not be "
                    f"judged from {self.first} to {self.last}; judge them on sessions they have not seen"
                )


class NoWorld(NamedTuple):
    """A scenario that could not be played, and why."""

    scenario: str
    note: str


@dataclass(frozen=True, eq=False)
class StressedWorld:
    """A market in which accounts open in cash at the close before session `first` and are judged to session `last`."""

    scenario: str
    panel: MarketPanel
    blocks: tuple[Block, ...]  # sessions of the panel, one after the other, and the fold whose policies decide on them
    shock: int | None = None  # first session of the panel that is not as it was; None where all are
    cost_factor: float = 1.0  # times every cost of trading
    has_twin: bool = True  # whether the calm world shows the same sessions without the stress
    note: str = ""  # what a reader must know of it

    @property
    def first(self) -> int:
        """First session judged, an index into the panel."""
        return self.blocks[0].test_first

    @property
    def last(self) -> int:
        """Last session judged, an index into the panel."""
        return self.blocks[-1].test_last


@dataclass(frozen=True, eq=False)
class CalmMarket:
    """What happened, up to the last session that may be judged, and the window in which shocks are played."""

    prices: Prices  # of every name of the source
    panel: MarketPanel  # of the names chosen, those included that are listed later: not tradable on any session
    out_of_sample: tuple[OutOfSample, ...]
    n_sessions: int  # of the window: the last ones that may be judged
    n_before: int  # sessions before the window that the panels of shocks are made of
    max_gap: int

    @classmethod
    def of(
        cls,
        returns: pl.DataFrame,
        out_of_sample: Sequence[OutOfSample],
        n_sessions: tuple[int, int],
        symbols: Sequence[str] | None = None,
        max_gap: int = 5,
    ) -> Self:
        """The market in rows of `gold.returns` of one source, its window of some sessions and those before it.

        Raises:
            ValueError: if nothing may be judged, or what may lies outside the market's sessions.
        """
        prices = Prices.of(returns)
        days = [np.datetime64(day) for part in out_of_sample for day in (part.first, part.last)]
        if not days or min(days) <= prices.sessions[0] or max(days) > prices.sessions[-1]:
            asked = f"from {min(days)} to {max(days)}" if days else "on none"
            raise ValueError(
                f"a stress test needs sessions on which its policies may be judged, later than the first of the "
                f"market's, {prices.sessions[0]} to {prices.sessions[-1]}, but they may be judged {asked}; give others"
            )
        known = prices.until(int(np.searchsorted(prices.sessions, max(days), side="right")) - 1)
        return cls(known, _panel(known, symbols, max_gap), tuple(out_of_sample), *n_sessions, max_gap)

    @cached_property
    def names(self) -> NDArray[np.bool_]:
        """Which are the names chosen, (N,)."""
        return np.isin(self.prices.symbols, self.panel.symbols)

    @cached_property
    def window(self) -> tuple[int, int]:
        """First and last session in which shocks are played, indices into the prices.

        Raises:
            ValueError: if some session between them may not be judged, or none may.
        """
        judged = self.judged_on(self.panel)[-self.n_sessions :]
        if not len(judged) or len(judged) != judged[-1] - judged[0] + 1:
            raise ValueError(
                f"shocks are played in the last {self.n_sessions} sessions that may be judged, which must follow one "
                f"another, but {len(judged)} were found that do not; choose a window of fewer sessions"
            )
        offset = self.index_of(self.panel.sessions[0])
        return int(judged[0]) + offset, int(judged[-1]) + offset

    @cached_property
    def trained_on(self) -> NDArray[np.bool_]:
        """Sessions of the prices on which a policy was trained that decides in the window, (T,)."""
        first, last = (self.panel.index_of(self.prices.sessions[index]) for index in self.window)
        found = np.zeros(len(self.prices.sessions), dtype=bool)
        for place in np.unique(self._deciding(self.panel)[first : last + 1]):
            for begin, end in self.out_of_sample[place].trained:
                found[self.index_of(np.datetime64(begin)) : self.index_of(np.datetime64(end) + 1)] = True
        return found

    def index_of(self, session: np.datetime64) -> int:
        """The first session of the prices on or after a day."""
        return int(np.searchsorted(self.prices.sessions, session))

    def judged_on(self, panel: MarketPanel) -> NDArray[np.int64]:
        """The sessions of a panel on which policies may be judged."""
        return np.flatnonzero(self._deciding(panel) != NOBODY)

    def begin(self, at: float, n_sessions: int) -> int:
        """The session of the prices at a share of the window, from which a shock of some sessions stays within it.

        Raises:
            NoWorldError: if it does not, or no name has a price there.
        """
        first, last = self.window
        start = first + int(at * (last - first + 1))
        sessions = self.prices.sessions
        if start + n_sessions - 1 > last:
            raise NoWorldError(
                f"a shock of {n_sessions} sessions from {sessions[start]} on must end within the window, but that ends "
                f"on {sessions[last]}; begin earlier, shorten it, or bring more sessions to be judged on"
            )
        if not (self.prices.has_price[start] & self.names).any():
            raise NoWorldError(f"no name has a price on {sessions[start]}, where the shock begins; begin at another")
        return start

    def calm(self) -> StressedWorld:
        """The window as it was."""
        return self._world(CALM, self._calm_panel)

    def world(self, scenario: str, prices: Prices, shock: int, note: str = "") -> StressedWorld:
        """The window, or what the prices know of it, with other prices from session `shock` of the prices on.

        Raises:
            NoWorldError: if the prices make no panel, for a gap that has grown too long.
        """
        try:
            panel = self._recent(prices)
        except ValueError as error:
            raise NoWorldError(f"the prices of {scenario} make no market: {error}") from error
        at = panel.index_of(self.prices.sessions[shock])
        return replace(self._world(scenario, panel), shock=at, note=note)

    def blocks(self, panel: MarketPanel, first: int, last: int) -> tuple[Block, ...]:
        """Who decides on each session of a panel from `first` to `last`: of the folds that may, the last given.

        Raises:
            NoWorldError: if nobody may decide on one of them.
        """
        deciding = self._deciding(panel)[first : last + 1]
        if not len(deciding) or (deciding == NOBODY).any():
            raise NoWorldError(
                f"no policy may be judged on every session from {panel.sessions[first]} to {panel.sessions[last]}; "
                "choose sessions that the folds test"
            )
        runs = [(place, len(list(run))) for place, run in groupby(deciding.tolist())]
        ends = first + np.cumsum([length for _, length in runs])
        return tuple(
            Block(self.out_of_sample[place].fold, int(end) - length, int(end) - 1)
            for (place, length), end in zip(runs, ends, strict=True)
        )

    @cached_property
    def _calm_panel(self) -> MarketPanel:
        return self._recent(self.prices)

    def _recent(self, prices: Prices) -> MarketPanel:
        """The panel of some prices, made of the sessions from `n_before` before the window on."""
        return _panel(prices.since(self._begin), self.panel.symbols, self.max_gap)

    @cached_property
    def _begin(self) -> int:
        """The first session of the panels of shocks; a name that was delisted before has its last bar in them."""
        traded = self.prices.has_price[:, self.names]
        last_bars = [np.flatnonzero(column)[-1] for column in traded.T if column.any()]
        return max(0, min(self.window[0] - self.n_before, *map(int, last_bars)))

    def _world(self, scenario: str, panel: MarketPanel) -> StressedWorld:
        first, last = (panel.index_of(self.prices.sessions[index]) for index in self.window)
        return StressedWorld(scenario, panel, self.blocks(panel, first, min(last, len(panel.sessions) - 1)))

    def _deciding(self, panel: MarketPanel) -> NDArray[np.int64]:
        """Place of the fold that decides on each session of a panel, (T,); its first decision is made before that."""
        found = np.full(len(panel.sessions), NOBODY)
        for place, part in enumerate(self.out_of_sample):
            first = max(1, panel.index_of(np.datetime64(part.first)))
            found[first : panel.index_of(np.datetime64(part.last) + 1)] = place
        return found


def _panel(prices: Prices, symbols: Sequence[str] | None, max_gap: int) -> MarketPanel:
    """The panel of some names; one without any bar has columns of its own, for policies know it by its place."""
    rows = prices.rows()
    wanted = sorted(set(prices.symbols if symbols is None else symbols))
    unlisted = set(prices.symbols) - set(rows["symbol"].unique())
    panel = build_panel(rows, compute_features(rows), [name for name in wanted if name not in unlisted], max_gap)
    return panel if panel.symbols == tuple(wanted) else _widened(panel, wanted)


def _widened(panel: MarketPanel, symbols: Sequence[str]) -> MarketPanel:
    """The panel with more names (sorted), which are never tradable, eligible or delisted."""
    places = np.searchsorted(symbols, panel.symbols)
    overnight = panel.overnight_returns

    def wide(array: NDArray[Any]) -> NDArray[Any]:
        spread = np.zeros((len(array), len(symbols), *array.shape[2:]), dtype=array.dtype)
        spread[:, places] = array
        return spread

    return replace(
        panel,
        symbols=tuple(symbols),
        close_returns=wide(panel.close_returns),
        overnight_returns=None if overnight is None else wide(overnight),
        tradable=wide(panel.tradable),
        delisted=wide(panel.delisted),
        eligible=wide(panel.eligible),
        features=wide(panel.features),
    )
