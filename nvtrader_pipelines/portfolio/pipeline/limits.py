"""Limits: what no portfolio may exceed; what is cut goes to cash, so that a limit that holds goes on holding."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline.risk_limits import RiskLimits, Share
from nvtrader_pipelines.portfolio.pipeline.stage import (
    Adjust,
    BoolArray,
    FloatArray,
    Situation,
    listed,
    one_way,
    only,
    part_way,
    scaled,
    with_cash,
)

ROUNDING = 1e-12  # of a sum of weights


class TurnoverLimit(Component):
    """No decision turns over more than the limit: it goes w = held + k * (target - held), with the largest such k.

    What is held of names that are not eligible is sold first and in full, and counts. Names that are held but no longer
    selected leave step by step. It is the first of the limits and yields to the others, which hold after it even where
    what is held breaches them; compliance then asks about the turnover that is left.
    """

    kind: Literal["turnover_limit"] = "turnover_limit"
    risk_limit: ClassVar[str] = "max_turnover"  # the field of the risk limits that it may not be looser than
    max_turnover: Share | None = None  # one-way, cash included; null: the risk limits'
    mark_truncated: bool = True  # whether a cut is marked in the result

    def start(self, panel: MarketPanel, risk_limits: RiskLimits) -> Adjust:
        """The stage on one panel."""
        most = risk_limits.max_turnover if self.max_turnover is None else self.max_turnover

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:
            turnover = one_way(situation.held, weights)
            if turnover <= most + ROUNDING:
                return weights, ""
            start = only(situation.held, panel.eligible[situation.t])
            left, wanted = max(0.0, most - one_way(situation.held, start)), one_way(start, weights)
            if wanted <= left:
                return weights, ""
            return part_way(start, weights, left / wanted), f"turnover of {turnover:.1%} cut to {most:.1%}"

        return adjust


class PositionCap(Component):
    """No name weighs more than the cap."""

    kind: Literal["position_cap"] = "position_cap"
    risk_limit: ClassVar[str] = "max_position"
    max_position: Share | None = None  # null: the risk limits'
    mark_truncated: bool = True  # whether a cut is marked in the result

    def start(self, panel: MarketPanel, risk_limits: RiskLimits) -> Adjust:
        """The stage on one panel."""
        cap = risk_limits.max_position if self.max_position is None else self.max_position

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            over = weights[:-1] > cap
            if not over.any():
                return weights, ""
            return with_cash(np.minimum(weights[:-1], cap)), f"{listed(panel.symbols, over)} cut to {cap:.1%}"

        return adjust


class SectorCap(Component):
    """The names of one sector together weigh no more than the cap; those of a sector above it are scaled alike.

    Every name of the market needs its sector here, in the experiment itself: a file could change without it.
    """

    kind: Literal["sector_cap"] = "sector_cap"
    risk_limit: ClassVar[str] = "max_sector"
    sectors: dict[str, str] = Field(default={})  # symbol: sector, for every name of the market
    max_sector: Share | None = None  # null: the risk limits'
    mark_truncated: bool = True  # whether a cut is marked in the result

    def start(self, panel: MarketPanel, risk_limits: RiskLimits) -> Adjust:
        """The stage on one panel.

        Raises:
            ValueError: if a name has no sector.
        """
        most = risk_limits.max_sector if self.max_sector is None else self.max_sector
        members = self._members(panel.symbols)

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            names, reasons = weights[:-1], []
            for sector, inside in members.items():
                total = float(names[inside].sum())
                if total > most + ROUNDING:
                    names = np.where(inside, names * (most / total), names)
                    reasons.append(f"{sector} of {total:.1%} cut to {most:.1%}")
            return (with_cash(names), "; ".join(reasons)) if reasons else (weights, "")

        return adjust

    def _members(self, symbols: tuple[str, ...]) -> dict[str, BoolArray]:
        """Each sector's names, (N,)."""
        missing = np.array([symbol not in self.sectors for symbol in symbols])
        if missing.any():
            raise ValueError(
                f"sector_cap needs the sector of every name, but {listed(symbols, missing)} "
                f"{'have' if missing.sum() > 1 else 'has'} none; add to sectors, or leave the limit out"
            )
        own = np.array([self.sectors[symbol] for symbol in symbols])
        return {str(sector): own == sector for sector in np.unique(own)}


class GrossExposure(Component):
    """The names together weigh no more than the limit, short positions counted as much as long ones."""

    kind: Literal["gross_exposure"] = "gross_exposure"
    risk_limit: ClassVar[str] = "max_gross"
    max_gross: Share | None = None  # sum of absolute weights; null: the risk limits'
    mark_truncated: bool = True  # whether a cut is marked in the result

    def start(self, panel: MarketPanel, risk_limits: RiskLimits) -> Adjust:  # noqa: ARG002 - one signature
        """The stage on one panel."""
        most = risk_limits.max_gross if self.max_gross is None else self.max_gross
        return lambda weights, _: _within(weights, float(np.abs(weights[:-1]).sum()), most, "gross")


class NetExposure(Component):
    """The names together weigh no more than the limit, short positions taken off; of a long-only portfolio its gross.

    No stage raises an exposure, so a pipeline whose risk limits ask for a least one is refused.
    """

    kind: Literal["net_exposure"] = "net_exposure"
    risk_limit: ClassVar[str] = "max_net"
    max_net: Share | None = None  # sum of weights; null: the risk limits'
    mark_truncated: bool = True  # whether a cut is marked in the result

    def start(self, panel: MarketPanel, risk_limits: RiskLimits) -> Adjust:  # noqa: ARG002
        """The stage on one panel."""
        most = risk_limits.max_net if self.max_net is None else self.max_net
        return lambda weights, _: _within(weights, float(weights[:-1].sum()), most, "net")


def restriction(panel: MarketPanel, restricted: tuple[str, ...]) -> Adjust:
    """The stage that buys no restricted name: at most what is held of it stays, and the rest is cash.

    It comes last, and breaks no limit before it: it raises no weight, and buys less.
    """
    names = np.isin(panel.symbols, restricted)

    def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:
        over = names & (weights[:-1] > situation.held[:-1])
        if not over.any():
            return weights, ""
        kept = np.where(over, np.maximum(0.0, situation.held[:-1]), weights[:-1])
        return with_cash(kept), f"{listed(panel.symbols, over)} restricted: held or sold, and not bought"

    return adjust


def _within(weights: FloatArray, exposure: float, most: float, what: str) -> tuple[FloatArray, str]:
    if exposure <= most + ROUNDING:
        return weights, ""
    return scaled(weights, most / exposure), f"{what} of {exposure:.1%} cut to {most:.1%}"


Limit = Annotated[TurnoverLimit | PositionCap | SectorCap | GrossExposure | NetExposure, Field(discriminator="kind")]
