"""Limits of a portfolio; weight cut goes to cash, so that earlier limits still hold."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline.risk_limits import Gross, RiskLimits, Share, Turnover
from nvtrader_pipelines.portfolio.pipeline.stage import (
    Adjust,
    BoolArray,
    FloatArray,
    Situation,
    add_cash,
    drop_rounding,
    format_names,
    gross_exposure,
    move_towards,
    one_way_turnover,
    restrict_to,
    scale_exposure,
)

ROUNDING = 1e-12  # tolerance of a sum of weights


class TurnoverLimit(Component):
    """Cap on turnover: trade held + k * (target - held) with the largest k within the limit.

    Held names that are not eligible are sold first and in full, which counts. Held names that are no longer selected
    are sold step by step. It comes before the caps, which may exceed it, since they hold even if the held weights
    breach them. Compliance then reports the remaining turnover.
    """

    kind: Literal["turnover_limit"] = "turnover_limit"
    risk_limit: ClassVar[str] = "max_turnover"  # field of the risk limits that bounds it
    max_turnover: Turnover | None = None  # one-way, cash included; null: as in the risk limits
    mark_truncated: bool = True  # whether a cut is marked in the result

    def start(self, panel: MarketPanel, risk_limits: RiskLimits) -> Adjust:
        """Return the stage for one panel."""
        limit = risk_limits.max_turnover if self.max_turnover is None else self.max_turnover

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:
            turnover = one_way_turnover(situation.held, weights)
            if turnover <= limit + ROUNDING:
                return weights, ""
            start = restrict_to(situation.held, panel.eligible[situation.t])
            left, wanted = max(0.0, limit - one_way_turnover(situation.held, start)), one_way_turnover(start, weights)
            if wanted <= left:
                return weights, ""
            return move_towards(start, weights, left / wanted), f"turnover of {turnover:.1%} cut to {limit:.1%}"

        return adjust


class PartialAdjustment(Component):
    """Trade the mix of names a share of the way from held to target at each decision.

    The exposure is the target's at once, so that no timing is slowed. Held names that are not eligible are sold in
    full. An account that holds no other name buys the whole target, since it has no mix to move from. It comes before
    the caps, which hold even if the held weights breach them.

    Source: Gârleanu & Pedersen (2013): aim in front of the target, trade partially towards it; the split of mix and
    exposure is our choice.
    """

    kind: Literal["partial_adjustment"] = "partial_adjustment"
    risk_limit: ClassVar[None] = None  # no risk limit bounds it
    mark_truncated: ClassVar[bool] = False  # a rule of trading, not a cut
    share: Share = 0.25  # of the change of mix

    def start(self, panel: MarketPanel, risk_limits: RiskLimits) -> Adjust:  # noqa: ARG002 - one signature
        """Return the stage for one panel."""

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:
            start = restrict_to(situation.held, panel.eligible[situation.t])
            exposure, held = gross_exposure(weights), gross_exposure(start)
            if self.share == 1.0 or not (exposure > ROUNDING and held > ROUNDING):
                return weights, ""
            rescaled = add_cash(drop_rounding(start[:-1]) * (exposure / held))
            return move_towards(rescaled, weights, self.share), f"{self.share:.0%} of the way from the held mix"

        return adjust


class PositionCap(Component):
    """Cap on the weight per name, long or short; short positions are also held to `risk_limits.max_short`."""

    kind: Literal["position_cap"] = "position_cap"
    risk_limit: ClassVar[str] = "max_position"
    max_position: Share | None = None  # null: as in the risk limits
    mark_truncated: bool = True  # whether a cut is marked in the result

    def start(self, panel: MarketPanel, risk_limits: RiskLimits) -> Adjust:
        """Return the stage for one panel."""
        cap = risk_limits.max_position if self.max_position is None else self.max_position

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            names, most_short = weights[:-1], min(cap, risk_limits.max_short)
            over, under = names > cap, names < -most_short
            if not (over | under).any():
                return weights, ""
            cuts = [(over, f"cut to {cap:.1%}"), (under, f"short cut to {most_short:.1%}")]
            reason = "; ".join(f"{format_names(panel.symbols, cut)} {how}" for cut, how in cuts if cut.any())
            return add_cash(np.clip(names, -most_short, cap)), reason

        return adjust


class SectorCap(Component):
    """Cap on the absolute weight per sector; names of a sector above it are scaled proportionally.

    Every name of the market needs its sector in the experiment itself, since a separate file could change.
    """

    kind: Literal["sector_cap"] = "sector_cap"
    risk_limit: ClassVar[str] = "max_sector"
    sectors: dict[str, str] = Field(default={})  # symbol: sector, for every name of the market
    max_sector: Gross | None = None  # null: as in the risk limits
    mark_truncated: bool = True  # whether a cut is marked in the result

    def start(self, panel: MarketPanel, risk_limits: RiskLimits) -> Adjust:
        """Return the stage for one panel.

        Raises:
            ValueError: if a name has no sector.
        """
        limit = risk_limits.max_sector if self.max_sector is None else self.max_sector
        members = self._names_by_sector(panel.symbols)

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            names, reasons = weights[:-1], []
            for sector, inside in members.items():
                total = float(np.abs(names[inside]).sum())
                if total > limit + ROUNDING:
                    names = np.where(inside, names * (limit / total), names)
                    reasons.append(f"{sector} of {total:.1%} cut to {limit:.1%}")
            return (add_cash(names), "; ".join(reasons)) if reasons else (weights, "")

        return adjust

    def _names_by_sector(self, symbols: tuple[str, ...]) -> dict[str, BoolArray]:
        """Names of each sector, (N,)."""
        missing = np.array([symbol not in self.sectors for symbol in symbols])
        if missing.any():
            raise ValueError(
                f"sector_cap needs the sector of every name, but {format_names(symbols, missing)} "
                f"{'have' if missing.sum() > 1 else 'has'} none; add to sectors, or leave the limit out"
            )
        own = np.array([self.sectors[symbol] for symbol in symbols])
        return {str(sector): own == sector for sector in np.unique(own)}


class GrossExposure(Component):
    """Cap on gross exposure: the sum of absolute weights of the names."""

    kind: Literal["gross_exposure"] = "gross_exposure"
    risk_limit: ClassVar[str] = "max_gross"
    max_gross: Gross | None = None  # sum of absolute weights; null: as in the risk limits
    mark_truncated: bool = True  # whether a cut is marked in the result

    def start(self, panel: MarketPanel, risk_limits: RiskLimits) -> Adjust:  # noqa: ARG002 - one signature
        """Return the stage for one panel."""
        limit = risk_limits.max_gross if self.max_gross is None else self.max_gross

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            gross = gross_exposure(weights)
            if gross <= limit + ROUNDING:
                return weights, ""
            return scale_exposure(weights, limit / gross), f"gross of {gross:.1%} cut to {limit:.1%}"

        return adjust


class NetExposure(Component):
    """Range of net exposure, long less short weights of the names; the side that is too large is scaled down.

    No stage raises an exposure, so a pipeline whose risk limits have a positive minimum is refused.
    """

    kind: Literal["net_exposure"] = "net_exposure"
    risk_limit: ClassVar[str] = "max_net"
    max_net: Gross | None = None  # sum of weights; null: as in the risk limits
    mark_truncated: bool = True  # whether a cut is marked in the result

    def start(self, panel: MarketPanel, risk_limits: RiskLimits) -> Adjust:  # noqa: ARG002
        """Return the stage for one panel."""
        limit = risk_limits.max_net if self.max_net is None else self.max_net
        least = risk_limits.min_net

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            names, net = weights[:-1], float(weights[:-1].sum())
            if least - ROUNDING <= net <= limit + ROUNDING:
                return weights, ""
            bound, side = (limit, names > 0.0) if net > limit else (least, names < 0.0)
            too_large, rest = float(names[side].sum()), float(names[~side].sum())
            scaled = np.where(side, names * ((bound - rest) / too_large), names)
            return add_cash(scaled), f"net of {net:.1%} cut to {bound:.1%}"

        return adjust


def restriction(panel: MarketPanel, restricted: tuple[str, ...]) -> Adjust:
    """Return the stage that lets restricted names move towards 0 only; the rest is cash.

    It comes last and breaks no earlier limit, since it raises no absolute weight, except that of net exposure of
    accounts with short positions, which comes after it.
    """
    names = np.isin(panel.symbols, restricted)

    def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:
        held = situation.held[:-1]
        kept = np.clip(weights[:-1], np.minimum(0.0, held), np.maximum(0.0, held))
        over = names & (kept != weights[:-1])
        if not over.any():
            return weights, ""
        capped = np.where(over, kept, weights[:-1])
        return add_cash(capped), f"{format_names(panel.symbols, over)} restricted: held or sold, and not bought"

    return adjust


Limit = Annotated[
    TurnoverLimit | PartialAdjustment | PositionCap | SectorCap | GrossExposure | NetExposure,
    Field(discriminator="kind"),
    Family("limits"),
]
