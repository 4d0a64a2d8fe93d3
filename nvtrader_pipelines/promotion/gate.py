"""Promotion gate: a candidate must beat the active policy and its own best baseline."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.alpha import NO_RESIDUAL_SPREAD
from nvtrader_pipelines.evaluation.findings import MIN_DEFLATED, describe_period, format_probability
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio, varies

FloatArray = NDArray[np.float64]
SessionDays = NDArray[np.datetime64]
Opponent = Literal["active", "baseline"]


@dataclass(frozen=True, eq=False)
class TrackRecord:
    """Net returns of a policy and the baselines of its run, over the reported test sessions.

    Raises:
        ValueError: if lengths differ, sessions do not ascend, or some returns are not finite.
    """

    name: str  # as in sentences
    sessions: SessionDays  # (T,), ascending
    net: FloatArray  # (T,)
    baselines: Mapping[str, FloatArray]  # each (T,)
    periods_per_year: int
    period: str = "all"  # of the sessions: from_<year>, or all without a reported period
    terms: Mapping[str, str] = field(default_factory=dict)  # market, fills and costs in words

    def __post_init__(self) -> None:
        for name, returns in {self.name: self.net, **self.baselines}.items():
            if returns.shape != self.sessions.shape or not np.isfinite(returns).all():
                raise ValueError(
                    f"a promotion needs a finite return of every session, but {name} has {returns.size} returns for "
                    f"{self.sessions.size} sessions, {int(np.isfinite(returns).sum())} of them finite; evaluate the "
                    "run again"
                )
        if (np.diff(self.sessions) <= np.timedelta64(0, "D")).any():
            raise ValueError(f"sessions of {self.name} must be distinct and ascending")

    @property
    def period_suffix(self) -> str:
        """Reported period in words, to follow a number of sessions."""
        return "" if self.period == "all" else f" of the {describe_period(self.period)}"

    def restrict_to(self, sessions: SessionDays) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Select the returns of the policy and of its baselines on some of the sessions."""
        inside = np.isin(self.sessions, sessions)
        return self.net[inside], {name: returns[inside] for name, returns in self.baselines.items()}


@dataclass(frozen=True)
class SharpeDifference:
    """Annualized Sharpe ratio of the candidate less that of an opponent on the same sessions."""

    against: Opponent
    opponent: str
    sharpe: float  # of the opponent
    difference: float
    low: float
    high: float
    confidence_level: float  # of the interval, two-sided

    @property
    def is_equal(self) -> bool:
        """Whether both have the same Sharpe ratio in every bootstrap draw."""
        return self.difference == self.low == self.high == 0.0

    @property
    def passed(self) -> bool:
        """Whether the lower bound of the interval is above zero."""
        return self.low > 0.0

    @property
    def sentence(self) -> str:
        """Difference with its interval and confidence level, in words."""
        verdict = "above 0" if self.passed else "not above 0"
        interval = f"{self.difference:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"
        who = f"the active policy {self.opponent}" if self.against == "active" else f"its best baseline {self.opponent}"
        if self.is_equal:
            return f"its Sharpe ratio equals that of {who} and is not above it"
        level = f"at {100.0 * self.confidence_level:.4g} % confidence"
        return f"Sharpe ratio less that of {who} {interval} {level}, lower bound {verdict}"


@dataclass(frozen=True)
class GateVerdict:
    """Decision of the gate on a candidate, with every figure it used."""

    passed: bool
    sentence: str
    n_sessions: int = 0  # that both were tested on
    first_session: date | None = None
    last_session: date | None = None
    sharpe: float | None = None  # of the candidate on them, annualized
    differences: tuple[SharpeDifference, ...] = ()
    deflated: float | None = None  # deflated information ratio of the candidate's run

    def against(self, opponent: Opponent) -> SharpeDifference | None:
        """Return the figures against one opponent, or None if they were not computed."""
        return next((difference for difference in self.differences if difference.against == opponent), None)


class PromotionGate(Component):
    """Rule by which a candidate replaces the active policy.

    By `lower_bound`, the lower bound of the interval of the paired Sharpe difference must be above 0, against the
    active policy and against the best baseline of the candidate's run, chosen with hindsight on the same sessions:
    those of the reported period, where the experiment has one. Without an active policy only the baseline counts. The
    difference of two policies whose returns are equal or multiples of each other, to a millionth of their spread, is 0,
    so that a retrained policy with the same decisions does not pass. A policy whose returns never vary does not pass.

    By `best_sharpe`, a Sharpe ratio above 0 and above that of the active policy on the same sessions is enough: a new
    best Sharpe ratio alone is handed on, which is often luck. The same figures are shown.

    Source: Continuous RL for the second rule.
    """

    rule: Literal["lower_bound", "best_sharpe"] = "lower_bound"
    intervals: SharpeIntervals = SharpeIntervals()  # two-sided, of the paired Sharpe difference
    least_sessions: int = Field(default=252, ge=2)  # that both were tested on
    require_deflated: bool = False  # also a deflated information ratio of .95, which is always shown

    def judge(self, candidate: TrackRecord, active: TrackRecord | None, deflated: float | None = None) -> GateVerdict:
        """Judge whether a candidate replaces the active policy, if there is one.

        `deflated` is the deflated information ratio of the candidate's run, if known.

        Raises:
            ValueError: if the candidate has no baseline.
        """
        if not candidate.baselines:
            raise ValueError(f"a promotion needs a baseline to beat, but the run of {candidate.name} has none")
        difference = _terms_difference(candidate, active) if active else None
        if difference:
            return GateVerdict(passed=False, sentence=difference, deflated=deflated)
        common = candidate.sessions if active is None else np.intersect1d(candidate.sessions, active.sessions)
        if len(common) < self.least_sessions:
            both = "it was tested on" if active is None else f"it and {active.name} were both tested on"
            found = f"{both} {len(common)} sessions{candidate.period_suffix}"
            sentence = f"{candidate.name} is not promoted: {found}, and {self.least_sessions} are required"
            return GateVerdict(passed=False, sentence=sentence, n_sessions=len(common), deflated=deflated)
        return self._compare(candidate, active, common, deflated)

    def _compare(
        self, candidate: TrackRecord, active: TrackRecord | None, common: SessionDays, deflated: float | None
    ) -> GateVerdict:
        """Judge on the sessions that both were tested on."""
        own, baselines = candidate.restrict_to(common)
        first, last = common[0].item(), common[-1].item()
        verdict = GateVerdict(
            passed=False,
            sentence=f"{candidate.name} is not promoted: its returns never vary from {first} to {last}, so it has no "
            "Sharpe ratio; check its holdings",
            n_sessions=len(common),
            first_session=first,
            last_session=last,
            deflated=deflated,
        )
        if not varies(own):
            return verdict
        periods_per_year = candidate.periods_per_year
        best = max(baselines, key=lambda name: sharpe_ratio(baselines[name], periods_per_year))
        against: list[tuple[Opponent, str, FloatArray]] = [("baseline", best, baselines[best])]
        if active is not None:
            against.insert(0, ("active", active.name, active.restrict_to(common)[0]))
        differences = self._differences(own, against, periods_per_year)
        is_deflated_enough = deflated is not None and deflated >= MIN_DEFLATED
        sharpe = sharpe_ratio(own, periods_per_year)
        passed = self._is_better(sharpe, differences) and (is_deflated_enough or not self.require_deflated)
        figures = "; ".join([*(difference.sentence for difference in differences), self._format_deflated(deflated)])
        sessions = f"{len(common)} sessions{candidate.period_suffix}, {first} to {last}"
        result = f"{'is' if passed else 'is not'} promoted: on {sessions}, {figures}"
        by_rule = "" if self.rule == "lower_bound" else "; by best_sharpe, the Sharpe ratio alone decides"
        sentence = f"{candidate.name} {result}{by_rule}"
        return replace(verdict, passed=passed, sentence=sentence, sharpe=sharpe, differences=differences)

    def _is_better(self, sharpe: float, differences: tuple[SharpeDifference, ...]) -> bool:
        """Whether the rule is satisfied, the deflated information ratio left out."""
        if self.rule == "lower_bound":
            return all(difference.passed for difference in differences)
        return (
            all(difference.difference > 0.0 for difference in differences if difference.against == "active")
            and sharpe > 0.0
        )

    def _differences(
        self, own: FloatArray, against: list[tuple[Opponent, str, FloatArray]], periods_per_year: int
    ) -> tuple[SharpeDifference, ...]:
        """Difference to every opponent; each draw resamples the same sessions for all of them."""
        returns = np.column_stack([own, *(returns for _, _, returns in against)])
        draws = self.intervals.draw(returns, periods_per_year)
        differences, of_own = [], sharpe_ratio(own, periods_per_year)
        for place, (opponent, name, theirs) in enumerate(against, start=1):
            sharpe = sharpe_ratio(theirs, periods_per_year)
            spread, other = own.std(), theirs.std()
            same = np.abs(own * other - theirs * spread).max() < NO_RESIDUAL_SPREAD * spread * other
            figures = (0.0, 0.0, 0.0) if same else (of_own - sharpe, *draws.difference(0, place))
            differences.append(SharpeDifference(opponent, name, sharpe, *figures, self.intervals.confidence_level))
        return tuple(differences)

    def _format_deflated(self, deflated: float | None) -> str:
        """Format the deflated information ratio with its requirement."""
        requirement = f"the gate {'requires' if self.require_deflated else 'does not require'} {MIN_DEFLATED}"
        value = "unknown" if deflated is None else format_probability(deflated, MIN_DEFLATED)
        return f"deflated information ratio {value} ({requirement})"


def _terms_difference(candidate: TrackRecord, active: TrackRecord) -> str | None:
    """Verdict on two policies with different market, fills or costs; None on equal terms."""
    for name in sorted({*candidate.terms, *active.terms}):
        own, other = candidate.terms.get(name, "none"), active.terms.get(name, "none")
        if own != other:
            return (
                f"{candidate.name} is not promoted: it cannot be compared with the active policy {active.name}, as the "
                f"{name} is {own} in its tests and {other} in those of the active policy; run it on the same terms"
            )
    return None
