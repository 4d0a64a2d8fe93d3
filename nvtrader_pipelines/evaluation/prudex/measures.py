"""Axes, measures and statistics of PRUDEX-Compass, and the columns of its table.

Source: Sun et al. (2023), "PRUDEX-Compass: Towards Systematic Evaluation of Reinforcement Learning in Financial
Markets", TMLR.
"""

from dataclasses import dataclass
from datetime import date

OF_AXIS = "axis"  # measure of the rows of whole axes


@dataclass(frozen=True)
class Statistic:
    """Statistic of a measure, with the better direction; an unscored one only describes."""

    name: str
    higher_is_better: bool = True
    scored: bool = True


@dataclass(frozen=True)
class Measure:
    """One of the seventeen measures, or this package's stand-in where the source has none."""

    axis: str
    name: str
    statistics: tuple[Statistic, ...]
    in_ring: bool = True  # one of the sixteen in the source's outer ring


@dataclass(frozen=True)
class ExtremeMarket:
    """Named historic window of falling markets."""

    name: str
    first: date
    last: date


EXTREME_MARKETS = (
    ExtremeMarket("dot_com_bust", date(2000, 9, 1), date(2002, 10, 9)),
    ExtremeMarket("financial_crisis", date(2008, 9, 1), date(2009, 3, 31)),
    ExtremeMarket("covid_crash", date(2020, 2, 20), date(2020, 4, 30)),
)
RANKED = ("total_return", "sharpe", "volatility", "entropy")  # statistics that the source ranks

_LOWER = {"higher_is_better": False}
_RISK = ("volatility", "downside_deviation", "max_drawdown")
_RATIOS = ("sharpe", "calmar", "sortino")
_PICTURE = {"scored": False}

MEASURES = (
    Measure("profitability", "profit", (Statistic("total_return"),)),
    Measure("profitability", "alpha_decay", (Statistic("excess_growth_slope"),)),
    Measure("profitability", "equity_curve", (Statistic("final_equity", **_PICTURE),)),
    Measure("risk_control", "risk", tuple(Statistic(name, **_LOWER) for name in _RISK)),
    Measure("risk_control", "risk_adjusted", tuple(map(Statistic, _RATIOS))),
    Measure(
        "risk_control",
        "extreme_market",
        tuple(Statistic(f"{name}:{market.name}") for market in EXTREME_MARKETS for name in ("total_return", "sharpe")),
    ),
    Measure("universality", "country", (Statistic("markets"), Statistic("countries"))),
    Measure("universality", "asset_type", (Statistic("asset_types"),)),
    Measure("universality", "time_scale", (Statistic("time_scales"),)),
    Measure("universality", "rolling_window", (Statistic("windows"),)),
    Measure("diversity", "t_sne", (Statistic("trustworthiness", **_PICTURE),)),
    Measure("diversity", "entropy", (Statistic("entropy"),)),
    Measure("diversity", "correlation", (Statistic("average_correlation", **_LOWER), Statistic("effective_bets"))),
    Measure("diversity", "diversity_heatmap", (Statistic("largest_weight", **_PICTURE),), in_ring=False),
    Measure("reliability", "profile", (Statistic("area_under_profile"),)),
    Measure("reliability", "variability", (Statistic("seed_deviation", **_LOWER, scored=False),)),
    Measure("reliability", "rank_order", tuple(Statistic(f"rank:{name}", **_LOWER) for name in RANKED)),
    Measure("explainability", "surrogate", (Statistic("surrogate_r2", **_PICTURE),), in_ring=False),
)
AXES = tuple(dict.fromkeys(measure.axis for measure in MEASURES))
RING = tuple(measure.name for measure in MEASURES if measure.in_ring)
SCORED = tuple(statistic.name for measure in MEASURES for statistic in measure.statistics if statistic.scored)
STATISTICS = {statistic.name: statistic for measure in MEASURES for statistic in measure.statistics}
PRIDE = {  # spokes of the PRIDE-Star, in order
    "TR": "total_return",
    "SR": "sharpe",
    "CR": "calmar",
    "SoR": "sortino",
    "Vol": "volatility",
    "MDD": "max_drawdown",
    "ENT": "entropy",
    "ENB": "effective_bets",
}
