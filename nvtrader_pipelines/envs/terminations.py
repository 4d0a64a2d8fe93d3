"""Terminations: a family of rules that end an episode early, and their effect on its reward."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.envs.rewards.term import RECENT_SESSIONS

FloatArray = NDArray[np.float64]
Share = Annotated[float, Field(gt=0.0, lt=1.0)]


@dataclass(frozen=True, eq=False)
class EpisodeView:
    """Inputs of a rule: n episodes after a step of k sessions."""

    path: FloatArray  # (n, k) equity at each close; episodes open at 1
    drawdown: FloatArray  # (n, k) loss from the highest close of the episode, positive fractions
    weights: FloatArray  # (n, N+1) at the last close, cash last
    recent_returns: FloatArray  # (n, RECENT_SESSIONS) net session returns, latest last; 0 before the episode
    gross: FloatArray  # (n, k) sum of absolute weights of names at each close, before any cap on it


class _Rule(Component):
    """Rule that ends an episode."""

    truncates: bool = True  # the end counts as truncated (the task would continue), else as terminated


class DrawdownTermination(_Rule):
    """End an episode when equity at a close is below its highest close by `limit` or more."""

    kind: Literal["drawdown"] = "drawdown"
    aliases: ClassVar[tuple[str, ...]] = ("DrawdownTermination",)
    limit: Share = 0.3  # fraction of the highest equity

    def triggers(self, view: EpisodeView) -> NDArray[np.bool_]:
        """Whether each episode ends, (n,)."""
        return view.drawdown.max(axis=1) >= self.limit


class MarginCallTermination(_Rule):
    """End an episode when equity at a close is at or below a fraction of the opening equity.

    The floor does not depend on what the account holds; `maintenance_margin` is the call of a broker.
    """

    kind: Literal["margin_call"] = "margin_call"
    aliases: ClassVar[tuple[str, ...]] = ("MarginCallTermination",)
    maintenance: Share = 0.5  # fraction of the opening equity

    def triggers(self, view: EpisodeView) -> NDArray[np.bool_]:
        """Whether each episode ends, (n,)."""
        return view.path.min(axis=1) <= self.maintenance


class MaintenanceMarginTermination(_Rule):
    """End an episode when equity at a close is a fraction `margin` or less of the gross value of the positions.

    Source: FINRA Rule 4210, maintenance margin of 25 % for long positions.
    """

    kind: Literal["maintenance_margin"] = "maintenance_margin"
    margin: Share = 0.25  # equity over the sum of absolute values of positions; 0.25 is a gross of 4

    def triggers(self, view: EpisodeView) -> NDArray[np.bool_]:
        """Whether each episode ends, (n,)."""
        return view.gross.max(axis=1) * self.margin >= 1.0


class RiskBreachTermination(_Rule):
    """End an episode that breaks a risk limit at a step's end; null switches a limit off.

    Volatility (ddof 0) and CVaR are of the episode's net session returns, with 0 for earlier sessions.
    """

    kind: Literal["risk_breach"] = "risk_breach"
    aliases: ClassVar[tuple[str, ...]] = ("RiskBreachTermination",)
    max_weight: Annotated[float, Field(gt=0.0, le=1.0)] | None = None  # per name
    max_volatility: PositiveFloat | None = None  # per session, over `window` sessions
    max_cvar: PositiveFloat | None = 0.05  # session loss, fraction of equity, over 63 sessions
    window: Annotated[int, Field(ge=2, le=RECENT_SESSIONS)] = 21
    confidence_level: Annotated[float, Field(ge=0.85, le=0.98)] = 0.95

    @model_validator(mode="after")
    def _require_limit(self) -> Self:
        if self.max_weight is None and self.max_volatility is None and self.max_cvar is None:
            raise ValueError("a risk breach needs a limit: set max_weight, max_volatility or max_cvar")
        return self

    def triggers(self, view: EpisodeView) -> NDArray[np.bool_]:
        """Whether each episode ends, (n,)."""
        from nvtrader_pipelines.envs.rewards.realized_risk import expected_shortfalls, volatilities

        broken = np.zeros(len(view.weights), dtype=bool)
        if self.max_weight is not None:
            broken |= np.abs(view.weights[:, :-1]).max(axis=1) > self.max_weight
        if self.max_volatility is not None:
            broken |= volatilities(view.recent_returns, self.window) > self.max_volatility
        if self.max_cvar is not None:
            broken |= expected_shortfalls(view.recent_returns, self.confidence_level) > self.max_cvar
        return broken


Termination = Annotated[
    DrawdownTermination | MarginCallTermination | MaintenanceMarginTermination | RiskBreachTermination,
    Field(discriminator="kind"),
    Family("terminations"),
]


class StopProperly(Component):
    """Change of the total reward R of an episode that a truncating termination ends.

    `literal` is coefficient * R, which improves a negative R; `sign_safe` is R - (1 - coefficient) * |R|, equal for
    R >= 0 and never above R. The length of an episode or the end of the data does not count as such an end.

    Source: stop-properly penalty of NVIDIA NeMo-RL's reward shaping (literal); the sign-safe form is our choice.
    """

    coefficient: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    form: Literal["sign_safe", "literal"] = "sign_safe"

    def shape_rewards(self, rewards: FloatArray) -> FloatArray:
        """Return the changed total rewards (n,) of truncated episodes."""
        if self.form == "literal":
            return self.coefficient * rewards
        return rewards - (1.0 - self.coefficient) * np.abs(rewards)
