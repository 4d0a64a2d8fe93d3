"""Loss shutdown: names that lost lately are held at a small weight."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.losses import NEVER
from nvtrader_pipelines.portfolio.pipeline.stage import (
    BoolArray,
    FloatArray,
    Guard,
    Guards,
    Situation,
    UnfittedTiming,
    add_cash,
    format_names,
)

Probe = Annotated[float, Field(ge=0.0, le=1.0)]  # largest absolute weight


class LossShutdown(UnfittedTiming):
    """Names whose position lost in one of the last decisions, cut to a probe; what is cut is cash.

    A profit ends the shutdown of a name at once; otherwise it lasts `cooldown` decisions. No weight is raised.

    Source: the loss shutdown of lee101/stock-prediction (gymrl), off by default there. The confirmation run had a
    cooldown of 12 and a probe of 0.002. Its losses of long and of short positions count apart; here a name has one
    count, so that a loss on either side cuts both.
    """

    kind: Literal["loss_shutdown"] = "loss_shutdown"
    has_guards: ClassVar[bool] = True
    probe: Probe = 0.05
    cooldown: Annotated[int, Field(ge=1, le=NEVER)] = 3  # decisions

    def start(self, panel: MarketPanel) -> Guard:
        """Return the stage for one panel."""

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str, Guards]:
            cut, names = self.cut(weights, situation, self.probe)
            return cut, self.reason(panel, names, self.probe), Guards(n_shutdown=int(names.sum()), probe=self.probe)

        return adjust

    def cut(self, weights: FloatArray, situation: Situation, probe: float) -> tuple[FloatArray, BoolArray]:
        """Cut names in their shutdown to a probe; returns the weights and the names that were cut, (N,)."""
        names = weights[:-1]
        if situation.since_loss is None:
            return weights, np.zeros(len(names), dtype=np.bool_)
        is_cut = (situation.since_loss < self.cooldown) & (np.abs(names) > probe)
        return add_cash(np.where(is_cut, np.sign(names) * probe, names)) if is_cut.any() else weights, is_cut

    def reason(self, panel: MarketPanel, names: BoolArray, probe: float) -> str:
        """Why names (N,) were cut; empty if none was."""
        if not names.any():
            return ""
        return f"{format_names(panel.symbols, names)} lost within {self.cooldown} decisions: cut to {probe:.2%}"
