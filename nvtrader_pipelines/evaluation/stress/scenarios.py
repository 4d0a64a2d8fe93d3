"""A stress test as a frozen spec, and the worlds it is made of, one after the other."""

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Annotated, Self

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.stress import (
    BlockBootstrap,
    CorrelationToOne,
    CostTimes,
    FlashCrash,
    Gap,
    HistoricWindow,
    MissingData,
    OneNameToZero,
    StressScenario,
    VolatilityTimes,
)
from nvtrader_pipelines.evaluation.stress.scenario import (
    CALM,
    CalmMarket,
    NoWorld,
    NoWorldError,
    OutOfSample,
    StressedWorld,
)

SCENARIOS: tuple[StressScenario, ...] = (
    Gap(),
    FlashCrash(),
    OneNameToZero(),
    CorrelationToOne(),
    VolatilityTimes(),
    MissingData(),
    MissingData(share=0.5),
    CostTimes(),
    BlockBootstrap(),
    HistoricWindow(first=date(2000, 1, 1), last=date(2002, 12, 31)),
    HistoricWindow(first=date(2008, 1, 1), last=date(2008, 12, 31)),
    HistoricWindow(first=date(2020, 1, 1), last=date(2020, 12, 31)),
)


WARM_UP = 273  # sessions that the features need, and a month


class StressTest(Component):
    """What is tested: scenarios, beside the window as it was.

    Policies see `history_sessions` before the window, of which the features take the first 252 to begin with; a policy
    that looks back further than what is left needs more. Historic windows show the whole past.
    """

    scenarios: tuple[StressScenario, ...] = SCENARIOS
    window_sessions: Annotated[int, Field(ge=21, le=2520)] = 252  # last ones that may be judged; shocks fall in them
    history_sessions: Annotated[int, Field(ge=504, le=25_200)] = 1512  # before the window; the first year warms up
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0  # of what is drawn at random

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [CALM, *(scenario.name for scenario in self.scenarios)]
        if len(set(names)) != len(names):
            raise ValueError(f"scenarios must differ in kind, size or years, but they are {names[1:]}")
        return self

    def looking_back(self, n_sessions: int) -> Self:
        """The same with at least so much history that a policy can look back some sessions of the panel."""
        return self.model_copy(update={"history_sessions": max(self.history_sessions, n_sessions + WARM_UP)})

    @property
    def n_worlds(self) -> int:
        """Worlds in all, the calm one included, if each can be played."""
        drawn = [each.n_worlds for each in self.scenarios if isinstance(each, BlockBootstrap)]
        return 1 + len(self.scenarios) - len(drawn) + sum(drawn)


STANDARD_STRESS_TEST = StressTest()


def stressed_worlds(
    returns: pl.DataFrame,
    out_of_sample: Sequence[OutOfSample],
    stress: StressTest = STANDARD_STRESS_TEST,
    symbols: Sequence[str] | None = None,
    max_gap: int = 5,
) -> Iterator[StressedWorld | NoWorld]:
    """The calm world, then those of each scenario; in place of one that cannot be played, why.

    Args:
        returns: rows of `gold.returns` of one source, from its first session on.
        out_of_sample: sessions that may be judged and who decides on them; of several on a session, the last given.
        stress: the scenarios, the window and the seed.
        symbols: the names to take; None takes all.
        max_gap: longest stretch of sessions a listed name may go without a price and come back.

    Raises:
        ValueError: if nothing may be judged, what may lies outside the market's sessions, or the bars make no panel.
    """
    market = CalmMarket.of(returns, out_of_sample, (stress.window_sessions, stress.history_sessions), symbols, max_gap)
    yield market.calm()
    for scenario in stress.scenarios:
        # by its name, so that a scenario draws the same with or without others beside it
        generator = np.random.default_rng([stress.seed, *scenario.name.encode()])
        try:
            yield from scenario.worlds(market, generator)
        except NoWorldError as error:
            yield NoWorld(scenario.name, str(error))
