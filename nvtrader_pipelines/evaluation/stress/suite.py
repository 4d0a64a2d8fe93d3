"""Stress test as a frozen spec, and the generator of its stressed markets."""

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Annotated, Self

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.stress import BootstrappedWindow, FlashCrash, Gap, HistoricWindow, StressScenario
from nvtrader_pipelines.evaluation.stress.scenario import (
    UNSTRESSED,
    OutOfSample,
    PanelChoice,
    ScenarioUnavailable,
    ScenarioUnavailableError,
    StressedMarket,
    UnstressedMarket,
)
from nvtrader_pipelines.market.panel import MarketPanel

SCENARIOS: tuple[StressScenario, ...] = (
    Gap(),
    FlashCrash(),
    BootstrappedWindow(),
    HistoricWindow(first=date(2000, 1, 1), last=date(2002, 12, 31)),
    HistoricWindow(first=date(2008, 1, 1), last=date(2008, 12, 31)),
    HistoricWindow(first=date(2020, 1, 1), last=date(2020, 12, 31)),
)
WARM_UP = 273  # sessions: the features' look-back and a month


class StressTest(Component):
    """Scenarios of a stress test, played beside the unstressed window.

    Policies see `history_sessions` before the window, the first 252 of which only warm up the features; a policy with a
    longer look-back needs more. Historic windows show the whole past.
    """

    scenarios: tuple[StressScenario, ...] = SCENARIOS
    window_sessions: Annotated[int, Field(ge=21, le=2520)] = 252  # last out-of-sample ones; shocks happen in them
    history_sessions: Annotated[int, Field(ge=504, le=25_200)] = 1512  # before the window; the first year warms up
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0  # of random scenarios

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [UNSTRESSED, *(scenario.name for scenario in self.scenarios)]
        if len(set(names)) != len(names):
            raise ValueError(f"scenarios must differ in kind, size or years, but they are {names[1:]}")
        return self

    def with_history(self, n_sessions: int) -> Self:
        """Return a copy with enough history for policies that look back `n_sessions`."""
        return self.model_copy(update={"history_sessions": max(self.history_sessions, n_sessions + WARM_UP)})

    @property
    def n_markets(self) -> int:
        """Number of markets if every scenario can be applied, the unstressed one included."""
        drawn = [scenario.n_worlds for scenario in self.scenarios if isinstance(scenario, BootstrappedWindow)]
        return 1 + len(self.scenarios) - len(drawn) + sum(drawn)


def apply_scenarios(
    returns: pl.DataFrame,
    out_of_sample: Sequence[OutOfSample],
    stress: StressTest,
    choice: PanelChoice,
    panel: MarketPanel | None = None,
) -> Iterator[StressedMarket | ScenarioUnavailable]:
    """Yield the unstressed market, then those of each scenario, or the reason why one is unavailable.

    Args:
        returns: rows of `gold.returns` of one source, from its first session on.
        out_of_sample: sessions that may be judged, by fold; where folds overlap, the last given decides.
        stress: scenarios, window and seed.
        choice: what the panel is made of.
        panel: that of the rows and the choice; None builds it.

    Raises:
        ValueError: if there are no out-of-sample sessions, they lie outside the market, or the bars make no panel.
    """
    n_sessions = stress.window_sessions, stress.history_sessions
    market = UnstressedMarket.of(returns, out_of_sample, n_sessions, choice, panel)
    yield market.unstressed()
    for scenario in stress.scenarios:
        # seeded by name: draws do not depend on the other scenarios
        generator = np.random.default_rng([stress.seed, *scenario.name.encode()])
        try:
            yield from scenario.apply(market, generator)
        except ScenarioUnavailableError as error:
            yield ScenarioUnavailable(scenario.name, str(error))
