"""The unstressed market of a stress test, its out-of-sample sessions, and the stressed markets made of it."""

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
from nvtrader_pipelines.evaluation.stress.price_arrays import PriceArrays
from nvtrader_pipelines.market.calendar import Calendars, TradingCalendar
from nvtrader_pipelines.market.features import Feature, compute_features
from nvtrader_pipelines.market.panel import MarketPanel, build_panel, map_arrays

UNSTRESSED = "unstressed"  # scenario name of the market as it was
NO_FOLD = -1  # position of the fold in force where no policy may be judged


class ScenarioUnavailableError(ValueError):
    """A scenario that does not fit the market or its out-of-sample sessions."""


@dataclass(frozen=True)
class OutOfSample:
    """Sessions on which a fold's policies may be judged, and the spans they were trained on.

    Raises:
        ValueError: if the two overlap.
    """

    fold: int
    first: date
    last: date
    # first and last session of each span; empty for rules that do not learn
    trained: tuple[tuple[date, date], ...] = ()

    def __post_init__(self) -> None:
        """Check that no training span overlaps the judged sessions."""
        for first, last in self.trained:
            if first <= self.last and self.first <= last:
                raise ValueError(
                    f"the policies of fold {self.fold} were trained on sessions from {first} to {last} and may not be "
                    f"judged from {self.first} to {self.last}; judge them on unseen sessions"
                )


class ScenarioUnavailable(NamedTuple):
    """A scenario that could not be applied, with the reason."""

    scenario: str
    note: str


@dataclass(frozen=True, eq=False)
class StressedMarket:
    """Market under one scenario; accounts open in cash at the close before `first` and run to `last`."""

    scenario: str
    panel: MarketPanel
    blocks: tuple[Block, ...]  # contiguous sessions of the panel, each block with the fold in force
    shock: int | None = None  # first session of the panel that differs; None where none does
    has_twin: bool = True  # whether the unstressed market covers the same sessions
    note: str = ""  # caveat for readers of the results

    @property
    def first(self) -> int:
        """Index of the first judged session in the panel."""
        return self.blocks[0].test_first

    @property
    def last(self) -> int:
        """Index of the last judged session in the panel."""
        return self.blocks[-1].test_last


class PanelChoice(NamedTuple):
    """What the panel of a market is made of."""

    calendar: TradingCalendar
    symbols: Sequence[str] | None = None  # None takes all that are usable
    max_gap: int = 5  # longest stretch of sessions a listed name may go without a price and come back
    features: Sequence[Feature] = ()  # in addition to those of gold.features
    series: pl.DataFrame | None = None  # rows of silver.series that the features read; no scenario changes them


@dataclass(frozen=True, eq=False)
class UnstressedMarket:
    """The market as it was, up to the last out-of-sample session, and the window in which shocks happen."""

    prices: PriceArrays  # of every name of the source
    panel: MarketPanel  # of the chosen names; one listed later is never tradable
    out_of_sample: tuple[OutOfSample, ...]
    n_sessions: int  # of the window: the last out-of-sample ones
    n_before: int  # sessions of history before the window in stressed panels
    choice: PanelChoice

    @classmethod
    def of(
        cls,
        returns: pl.DataFrame,
        out_of_sample: Sequence[OutOfSample],
        n_sessions: tuple[int, int],
        choice: PanelChoice,
        panel: MarketPanel | None = None,
    ) -> Self:
        """Build the market from rows of `gold.returns` of one source, and its panel unless it is given.

        `n_sessions` are those of the window and of the history before it.

        Raises:
            ValueError: if there are no out-of-sample sessions, or they lie outside the market's sessions.
        """
        prices = PriceArrays.of(returns, choice.calendar)
        days = [np.datetime64(day) for part in out_of_sample for day in (part.first, part.last)]
        if not days or min(days) <= prices.sessions[0] or max(days) > prices.sessions[-1]:
            found = f"from {min(days)} to {max(days)}" if days else "on none"
            raise ValueError(f"sessions must be in {prices.sessions[0]} to {prices.sessions[-1]}, but are {found}")
        known = prices.until(int(np.searchsorted(prices.sessions, max(days), side="right")) - 1)
        if panel is None:
            panel = _panel(known, choice.symbols or _build(returns, None, choice).symbols, choice)
        else:
            n_known = panel.index_of(max(days) + 1)
            panel = map_arrays(panel, lambda array: array[:n_known], sessions=panel.sessions[:n_known])
        return cls(known, panel, tuple(out_of_sample), *n_sessions, choice)

    @cached_property
    def names(self) -> NDArray[np.bool_]:
        """Whether a name of the prices was chosen for the panel, (N,)."""
        return np.isin(self.prices.symbols, self.panel.symbols)

    @cached_property
    def window(self) -> tuple[int, int]:
        """First and last session of the window, indices into the prices.

        Raises:
            ValueError: if the window is empty or has sessions that may not be judged.
        """
        judged = self.judged_sessions(self.panel)[-self.n_sessions :]
        if not len(judged) or len(judged) != judged[-1] - judged[0] + 1:
            raise ValueError(f"{self.n_sessions} judged sessions must be contiguous, but {len(judged)} are not")
        offset = self.index_of(self.panel.sessions[0])
        return int(judged[0]) + offset, int(judged[-1]) + offset

    @cached_property
    def trained_on(self) -> NDArray[np.bool_]:
        """Whether a policy that decides in the window was trained on a session of the prices, (T,)."""
        first, last = (self.panel.index_of(self.prices.sessions[index]) for index in self.window)
        is_trained = np.zeros(len(self.prices.sessions), dtype=bool)
        for position in np.unique(_folds_in_force(self.panel, self.out_of_sample)[first : last + 1]):
            for begin, end in self.out_of_sample[position].trained:
                is_trained[self.index_of(np.datetime64(begin)) : self.index_of(np.datetime64(end) + 1)] = True
        return is_trained

    def index_of(self, session: np.datetime64) -> int:
        """Index of the first session of the prices on or after a day."""
        return int(np.searchsorted(self.prices.sessions, session))

    def judged_sessions(self, panel: MarketPanel) -> NDArray[np.int64]:
        """Indices of the sessions of a panel on which policies may be judged."""
        return np.flatnonzero(_folds_in_force(panel, self.out_of_sample) != NO_FOLD)

    def shock_start(self, at: float, n_sessions: int) -> int:
        """Index of the session at a share `at` of the window, where a shock of `n_sessions` starts.

        Raises:
            ScenarioUnavailableError: if the shock does not end within the window, or no name has a price at its start.
        """
        first, last = self.window
        start = first + int(at * (last - first + 1))
        sessions = self.prices.sessions
        if start + n_sessions - 1 > last:
            raise ScenarioUnavailableError(
                f"a shock of {n_sessions} sessions from {sessions[start]} must end within the window, but that ends on "
                f"{sessions[last]}; start earlier, shorten it, or bring more sessions to be judged on"
            )
        if not (self.prices.has_price[start] & self.names).any():
            raise ScenarioUnavailableError(
                f"no name has a price on {sessions[start]}, where the shock starts; choose another start"
            )
        return start

    def unstressed(self) -> StressedMarket:
        """The window without any stress."""
        return self._window_market(UNSTRESSED, self._unstressed_panel)

    def stressed(self, scenario: str, prices: PriceArrays, shock: int, note: str = "") -> StressedMarket:
        """The window with changed prices from session `shock` of the prices on; shorter where the prices end early.

        Raises:
            ScenarioUnavailableError: if the prices make no panel, because a gap has become too long.
        """
        try:
            panel = self._recent(prices)
        except ValueError as error:
            raise ScenarioUnavailableError(f"the prices of {scenario} make no market: {error}") from error
        start = panel.index_of(self.prices.sessions[shock])
        return replace(self._window_market(scenario, panel), shock=start, note=note)

    def blocks(self, panel: MarketPanel, first: int, last: int) -> tuple[Block, ...]:
        """Cut sessions `first` to `last` of a panel into blocks by fold in force; of overlapping folds, the last.

        Raises:
            ScenarioUnavailableError: if a session has no fold whose policies may be judged on it.
        """
        in_force = _folds_in_force(panel, self.out_of_sample)[first : last + 1]
        if not len(in_force) or (in_force == NO_FOLD).any():
            raise ScenarioUnavailableError(
                f"no policy may be judged on every session from {panel.sessions[first]} to {panel.sessions[last]}; "
                "choose sessions that the folds test"
            )
        runs = [(position, len(list(run))) for position, run in groupby(in_force.tolist())]
        ends = first + np.cumsum([length for _, length in runs])
        return tuple(
            Block(self.out_of_sample[position].fold, int(end) - length, int(end) - 1)
            for (position, length), end in zip(runs, ends, strict=True)
        )

    @cached_property
    def _unstressed_panel(self) -> MarketPanel:
        return self._recent(self.prices)

    def _recent(self, prices: PriceArrays) -> MarketPanel:
        """Panel of prices, from `n_before` sessions before the window on."""
        return _panel(prices.since(self._history_start), self.panel.symbols, self.choice)

    @cached_property
    def _history_start(self) -> int:
        """First session of stressed panels, early enough for the last bar of every delisted name."""
        traded = self.prices.has_price[:, self.names]
        last_bars = [np.flatnonzero(column)[-1] for column in traded.T if column.any()]
        return max(0, min(self.window[0] - self.n_before, *map(int, last_bars)))

    def _window_market(self, scenario: str, panel: MarketPanel) -> StressedMarket:
        first, last = (panel.index_of(self.prices.sessions[index]) for index in self.window)
        return StressedMarket(scenario, panel, self.blocks(panel, first, min(last, len(panel.sessions) - 1)))


def _folds_in_force(panel: MarketPanel, out_of_sample: Sequence[OutOfSample]) -> NDArray[np.int64]:
    """Position of the fold in force on each session of a panel, (T,); it decides at the close before."""
    positions = np.full(len(panel.sessions), NO_FOLD)
    for position, part in enumerate(out_of_sample):
        first = max(1, panel.index_of(np.datetime64(part.first)))
        positions[first : panel.index_of(np.datetime64(part.last) + 1)] = position
    return positions


def _panel(prices: PriceArrays, symbols: Sequence[str], choice: PanelChoice) -> MarketPanel:
    """Panel of the chosen names; a name without any bar keeps its column, since policies know names by column."""
    rows = prices.rows()
    wanted = sorted(set(symbols))
    unlisted = set(prices.symbols) - set(rows["symbol"].unique())
    listed = [name for name in wanted if name not in unlisted]
    panel = _build(rows, listed, choice)
    return panel if panel.symbols == tuple(wanted) else _add_names(panel, wanted)


def _build(rows: pl.DataFrame, symbols: Sequence[str] | None, choice: PanelChoice) -> MarketPanel:
    known = compute_features(rows, choice.features, Calendars({rows["source"][0]: choice.calendar}), choice.series)
    return build_panel(rows, known, choice.calendar, symbols, choice.max_gap)


def _add_names(panel: MarketPanel, symbols: Sequence[str]) -> MarketPanel:
    """Add names (all names sorted) that are never tradable, eligible or delisted."""
    columns = np.searchsorted(symbols, panel.symbols)

    def widen(array: NDArray[Any]) -> NDArray[Any]:
        widened = np.zeros((len(array), len(symbols), *array.shape[2:]), dtype=array.dtype)
        widened[:, columns] = array
        return widened

    return map_arrays(panel, widen, symbols=tuple(symbols))
