"""Windows of the past as scenarios."""

from datetime import date
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.splits.fold import HOLIDAYS
from nvtrader_pipelines.evaluation.stress.scenario import ScenarioUnavailableError, StressedMarket, UnstressedMarket

MIN_SESSIONS = 21  # of a historic window that may be judged: fewer are noise


class HistoricWindow(Component):
    """Window of the past, decided by the policies of the folds that tested it.

    Where the tests cover only a part, that part is played.
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
        """Name of the scenario, with its year or years."""
        years = dict.fromkeys((self.first.year, self.last.year))
        return f"{self.kind}_{'-'.join(map(str, years))}"

    def apply(self, market: UnstressedMarket, generator: np.random.Generator) -> list[StressedMarket]:  # noqa: ARG002
        """Return the one market: the historic window.

        Raises:
            ScenarioUnavailableError: if the tests cover too few of its sessions.
        """
        panel, sessions = market.panel, market.panel.sessions
        days = np.datetime64(self.first), np.datetime64(self.last)
        wanted = np.arange(panel.index_of(days[0]), panel.index_of(days[1] + 1))
        judged = np.intersect1d(wanted, market.judged_sessions(panel))
        if len(judged) < MIN_SESSIONS:
            raise ScenarioUnavailableError(
                f"the folds test {len(judged)} sessions from {self.first} to {self.last}, and a window needs "
                f"{MIN_SESSIONS}; test earlier, or name another window"
            )
        begin, end = int(judged[0]), int(judged[-1])
        whole = len(judged) == len(wanted) and days[0] >= sessions[0] and days[1] <= sessions[-1] + HOLIDAYS
        note = "" if whole else f"tested from {sessions[begin]} to {sessions[end]} only"
        blocks = market.blocks(panel, begin, end)
        return [StressedMarket(self.name, panel, blocks, has_twin=False, note=note)]
