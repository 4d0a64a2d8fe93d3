"""The gate of a promotion: whether a policy has beaten the one that trades, and its own best baseline, by enough."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.active import NO_ACTIVE_SPREAD
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio, varies
from nvtrader_pipelines.market.calendar import SESSIONS_PER_YEAR
from nvtrader_pipelines.promotion.findings import MIN_DEFLATED, describe_period, format_probability

FloatArray = NDArray[np.float64]
SessionDays = NDArray[np.datetime64]
Opponent = Literal["active", "baseline"]


@dataclass(frozen=True, eq=False)
class TrackRecord:
    """Net returns of one policy and of the baselines of its run, over the reported sessions of the run's tests.

    Raises:
        ValueError: if lengths differ, sessions do not ascend, or some returns are not finite.
    """

    name: str  # as a sentence calls it
    sessions: SessionDays  # (T,), ascending
    net: FloatArray  # (T,)
    baselines: Mapping[str, FloatArray]  # each (T,)
    period: str = "all"  # of the sessions: from_<year> where some are reported apart; what was tuned on is left out
    terms: Mapping[str, str] = field(default_factory=dict)  # what its accounts paid and when they filled, in words

    def __post_init__(self) -> None:
        for name, returns in {self.name: self.net, **self.baselines}.items():
            if returns.shape != self.sessions.shape or not np.isfinite(returns).all():
                raise ValueError(
                    f"a promotion needs a finite return of every session, but of {name} there are {returns.size} for "
                    f"{self.sessions.size} sessions, {int(np.isfinite(returns).sum())} of them finite; evaluate the "
                    "run again"
                )
        if (np.diff(self.sessions) <= np.timedelta64(0, "D")).any():
            raise ValueError(f"a promotion needs every session once and in order, but those of {self.name} are not")

    @property
    def period_words(self) -> str:
        """Where the sessions are from, as a sentence takes it after their number."""
        return "" if self.period == "all" else f" of the {describe_period(self.period)}"

    def on(self, sessions: SessionDays) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Its returns and those of its baselines over some of its sessions."""
        inside = np.isin(self.sessions, sessions)
        return self.net[inside], {name: returns[inside] for name, returns in self.baselines.items()}


@dataclass(frozen=True)
class SharpeDifference:
    """The Sharpe ratio of the candidate less that of an opponent, on the same sessions; annual."""

    against: Opponent
    opponent: str
    sharpe: float  # of the opponent
    difference: float
    low: float
    high: float
    confidence_level: float  # of the interval, two-sided

    @property
    def same(self) -> bool:
        """Whether both have the same Sharpe ratio, whatever the sessions drawn."""
        return self.difference == self.low == self.high == 0.0

    @property
    def passed(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low > 0.0

    @property
    def sentence(self) -> str:
        """The figure with its bounds and their level, and what it means."""
        means = "above 0" if self.passed else "not above 0"
        interval = f"{self.difference:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"
        who = f"{self.opponent}, which trades," if self.against == "active" else f"its best baseline {self.opponent}"
        if self.same:
            return f"its Sharpe ratio is the same as that of {who} and so not above it"
        level = f"at {100.0 * self.confidence_level:.4g} % confidence"
        return f"Sharpe ratio less that of {who} {interval} {level}, lower bound {means}"


@dataclass(frozen=True)
class GateVerdict:
    """What the gate says of a candidate, with every figure that it went by."""

    passed: bool
    sentence: str
    n_sessions: int = 0  # that both were tested on
    first_session: date | None = None
    last_session: date | None = None
    sharpe: float | None = None  # of the candidate on them, annual
    differences: tuple[SharpeDifference, ...] = ()
    deflated: float | None = None  # deflated information ratio of the candidate's run

    def against(self, opponent: Opponent) -> SharpeDifference | None:
        """The figures against one opponent; None where they were not computed."""
        return next((each for each in self.differences if each.against == opponent), None)


class PromotionGate(Component):
    """What a policy must show before it takes the place of the one that trades.

    The lower bound of the interval of the paired Sharpe difference must be above 0, against the policy that trades and
    against the best baseline of its own run, chosen with hindsight on the same sessions: those of the reported period,
    where the experiment has one. Where nothing trades, it is
    the baseline alone. The difference of two policies that earn the same or a multiple of it, to a millionth of their
    spread, is 0: what is trained again and decides the same does not pass. A policy whose returns never vary has
    nothing to show.
    """

    intervals: SharpeIntervals = SharpeIntervals()  # two-sided, of the paired Sharpe difference
    least_sessions: int = Field(default=SESSIONS_PER_YEAR, ge=2)  # that both were tested on
    require_deflated: bool = False  # also a deflated information ratio of .95, which is shown in any case

    @property
    def rule(self) -> str:
        """What it asks of a policy, as sentences."""
        level = f"{100.0 * self.intervals.confidence_level:.4g} %"
        deflated = "is asked for, too" if self.require_deflated else "is not asked for"
        return (
            f"The lower bound of the {level} interval of the Sharpe ratio less that of the policy that trades, and "
            f"less that of the best baseline, must be above 0, on at least {self.least_sessions} sessions of the "
            f"reported period. A deflated information ratio of {MIN_DEFLATED} {deflated}."
        )

    def judge(self, candidate: TrackRecord, active: TrackRecord | None, deflated: float | None = None) -> GateVerdict:
        """The verdict on a candidate.

        Args:
            candidate: the policy that may be promoted.
            active: the policy that trades; None where none does.
            deflated: the deflated information ratio of the candidate's run; None where it is not known.

        Raises:
            ValueError: if the candidate has no baseline.
        """
        if not candidate.baselines:
            raise ValueError(f"a promotion is held against a baseline, but the run of {candidate.name} has none")
        unlike = _unlike(candidate, active) if active else None
        if unlike:
            return GateVerdict(passed=False, sentence=unlike, deflated=deflated)
        common = candidate.sessions if active is None else np.intersect1d(candidate.sessions, active.sessions)
        if len(common) < self.least_sessions:
            both = "it was tested on" if active is None else f"it and {active.name} were both tested on"
            found = f"{both} {len(common)} sessions{candidate.period_words}"
            said = f"{candidate.name} is not promoted: {found}, and {self.least_sessions} are needed"
            return GateVerdict(passed=False, sentence=said, n_sessions=len(common), deflated=deflated)
        return self._compared(candidate, active, common, deflated)

    def _compared(
        self, candidate: TrackRecord, active: TrackRecord | None, common: SessionDays, deflated: float | None
    ) -> GateVerdict:
        """The verdict on the sessions that both were tested on."""
        own, baselines = candidate.on(common)
        first, last = common[0].item(), common[-1].item()
        verdict = GateVerdict(
            passed=False,
            sentence=f"{candidate.name} is not promoted: its returns never vary from {first} to {last}, so it has no "
            "Sharpe ratio; look at what it holds",
            n_sessions=len(common),
            first_session=first,
            last_session=last,
            deflated=deflated,
        )
        if not varies(own):
            return verdict
        best = max(baselines, key=lambda name: sharpe_ratio(baselines[name]))
        against: list[tuple[Opponent, str, FloatArray]] = [("baseline", best, baselines[best])]
        if active is not None:
            against.insert(0, ("active", active.name, active.on(common)[0]))
        differences = self._differences(own, against)
        enough = deflated is not None and deflated >= MIN_DEFLATED
        passed = all(each.passed for each in differences) and (enough or not self.require_deflated)
        figures = "; ".join([*(each.sentence for each in differences), self._of_deflated(deflated)])
        sessions = f"{len(common)} sessions{candidate.period_words}, {first} to {last}"
        said = f"{'is' if passed else 'is not'} promoted: on {sessions}, {figures}"
        sentence = f"{candidate.name} {said}"
        return replace(verdict, passed=passed, sentence=sentence, sharpe=sharpe_ratio(own), differences=differences)

    def _differences(
        self, own: FloatArray, against: list[tuple[Opponent, str, FloatArray]]
    ) -> tuple[SharpeDifference, ...]:
        """One draw resamples the same sessions for the candidate and everybody it is held against."""
        returns = np.column_stack([own, *(each for _, _, each in against)])
        draws = self.intervals.draw(returns)
        found = []
        for place, (opponent, name, theirs) in enumerate(against, start=1):
            sharpe = sharpe_ratio(theirs)
            spread, other = own.std(), theirs.std()
            same = np.abs(own * other - theirs * spread).max() < NO_ACTIVE_SPREAD * spread * other
            figures = (0.0, 0.0, 0.0) if same else (sharpe_ratio(own) - sharpe, *draws.difference(0, place))
            found.append(SharpeDifference(opponent, name, sharpe, *figures, self.intervals.confidence_level))
        return tuple(found)

    def _of_deflated(self, deflated: float | None) -> str:
        """The deflated information ratio in words."""
        needed = f"{MIN_DEFLATED} needed" if self.require_deflated else f"{MIN_DEFLATED} not asked for"
        value = "not known" if deflated is None else format_probability(deflated, MIN_DEFLATED)
        return f"deflated information ratio {value} ({needed})"


def _unlike(candidate: TrackRecord, active: TrackRecord) -> str | None:
    """Why two policies cannot be compared: their accounts paid or filled otherwise."""
    for name in sorted({*candidate.terms, *active.terms}):
        own, other = candidate.terms.get(name, "none"), active.terms.get(name, "none")
        if own != other:
            return (
                f"{candidate.name} is not promoted: it cannot be compared with {active.name}, which trades, for the "
                f"{name} is {own} in the tests of the one and {other} in those of the other; run it on the same terms"
            )
    return None
