"""The 16 knobs of AutoResearch and the modes that search groups of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class SearchMode(StrEnum):
    """Groups of knobs that a search varies."""

    PPO_ONLY = "ppo_only"
    CUFOLIO_ONLY = "cufolio_only"
    UNIFIED = "unified"


@dataclass(frozen=True)
class Knob:
    """Number of an experiment that a search varies between two bounds, both included."""

    name: str
    group: str
    path: str  # dotted, in the document of an experiment
    low: float
    high: float
    is_whole: bool = False
    is_log: bool = False  # whether equal ratios count as equal steps

    @property
    def description(self) -> str:
        """Values that the knob takes, in words."""
        return f"a {'whole ' if self.is_whole else ''}number from {self.low:,.10g} to {self.high:,.10g}"

    def clip(self, value: float) -> float:
        """Nearest value within the bounds, an integer for a whole-number knob."""
        inside = min(max(value, self.low), self.high)  # as it is, since a huge integer is no float
        return int(inside) if self.is_whole else float(inside)


def _group(group: str, part: str, *knobs: Knob) -> tuple[Knob, ...]:
    return tuple(replace(knob, group=group, path=f"{part}.{knob.name}") for knob in knobs)


def _whole(name: str, low: int, high: int) -> Knob:
    return Knob(name, "", "", low, high, is_whole=True)


def _number(name: str, low: float, high: float, *, is_log: bool = False) -> Knob:
    return Knob(name, "", "", low, high, is_log=is_log)


ROLLOUT = "n_steps"  # steps of a rollout over all portfolios, where the agent counts those of one portfolio
MAX_POSITION = "max_position_pct"
ENV = _group(
    "env",
    "environment",
    _whole("lookback", 5, 60),
    _whole("episode_len", 20, 120),
    _whole("rebal_freq", 1, 10),
    _number("turnover_cost_bps", 0.0, 50.0),
    _number("vol_penalty", 0.0, 5.0),
)
PPO = _group(
    "ppo",
    "agent",
    _number("learning_rate", 1e-5, 1e-2, is_log=True),
    _whole(ROLLOUT, 64, 4096),
    _whole("batch_size", 32, 512),
    _number("gae_lambda", 0.85, 0.99),
    _number("gamma", 0.90, 0.999),
    _number("ent_coef", 0.0, 0.10),
    _whole("n_epochs", 3, 30),
)
CUFOLIO = _group(
    "cufolio",
    "pipeline.allocator",
    _number("cvar_alpha", 0.85, 0.99),
    _number(MAX_POSITION, 0.02, 0.30),
    _whole("n_scenarios", 1_000, 10_000),
    _whole("cufolio_hold_days", 5, 60),
)
KNOBS = {
    SearchMode.PPO_ONLY: ENV + PPO,
    SearchMode.CUFOLIO_ONLY: _group("cufolio", "agent", *CUFOLIO),
    SearchMode.UNIFIED: ENV + PPO + CUFOLIO,
}


def modes_of(name: str) -> Sequence[SearchMode]:
    """Modes that search a knob; none if there is no such knob."""
    return [mode for mode, knobs in KNOBS.items() if name in [knob.name for knob in knobs]]
