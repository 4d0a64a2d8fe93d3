"""Stresses that leave prices as they were: dearer trading, and windows of the past."""

from dataclasses import replace
from datetime import date
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.splits.fold import HOLIDAYS
from nvtrader_pipelines.evaluation.stress.scenario import CalmMarket, NoWorldError, StressedWorld

LEAST_SESSIONS = 21  # of a historic window that may be judged: fewer say nothing


class CostTimes(Component):
    """Every cost of trading is a multiple of what it was, over the whole window."""

    kind: Literal["cost_times"] = "cost_times"
    factor: Annotated[float, Field(gt=1.0, le=100.0)] = 5.0  # by which costs are multiplied

    @property
    def name(self) -> str:
        """The scenario."""
        return f"{self.kind}_{self.factor:g}"

    def worlds(self, market: CalmMarket, generator: np.random.Generator) -> list[StressedWorld]:  # noqa: ARG002
        """The one world of it."""
        return [replace(market.calm(), scenario=self.name, cost_factor=self.factor)]


class HistoricWindow(Component):
    """A window of the past as it was, decided by the policies of the folds that tested it.

    Where the tests cover only a part of it, that part is played.
    """

    kind: Literal["historic"] = "historic"
    first: date = date(2008, 1, 1)  # first day
    last: date = date(2008, 12, 31)  # last day

    @model_validator(mode="after")
    def _days_are_in_order(self) -> Self:
        if self.first >= self.last:
            raise ValueError(f"a historic window begins before it ends, but found {self.first} to {self.last}")
        return self

    @property
    def name(self) -> str:
        """The scenario: its year or years."""
        years = dict.fromkeys((self.first.year, self.last.year))
        return f"{self.kind}_{'-'.join(map(str, years))}"

    def worlds(self, market: CalmMarket, generator: np.random.Generator) -> list[StressedWorld]:  # noqa: ARG002
        """The one world of it.

        Raises:
            NoWorldError: if the tests cover too little of it.
        """
        panel, sessions = market.panel, market.panel.sessions
        days = np.datetime64(self.first), np.datetime64(self.last)
        wanted = np.arange(panel.index_of(days[0]), panel.index_of(days[1] + 1))
        judged = np.intersect1d(wanted, market.judged_on(panel))
        if len(judged) < LEAST_SESSIONS:
            raise NoWorldError(
                f"the folds test {len(judged)} sessions from {self.first} to {self.last}, and a window needs "
                f"{LEAST_SESSIONS}; test earlier, or name another window"
            )
        begin, end = int(judged[0]), int(judged[-1])
        whole = len(judged) == len(wanted) and days[0] >= sessions[0] and days[1] <= sessions[-1] + HOLIDAYS
        note = "" if whole else f"tested from {sessions[begin]} to {sessions[end]} only"
        blocks = market.blocks(panel, begin, end)
        return [StressedWorld(self.name, panel, blocks, has_twin=False, note=note)]
