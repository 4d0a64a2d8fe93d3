"""Claims that a search session may make after many trials and looks at one sealed window."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import inf, sqrt
from statistics import fmean, variance

import scipy  # its parts are imported when they are first used

from nvtrader_pipelines.evaluation.sharpe.deflation import luck_bar
from nvtrader_pipelines.evaluation.sharpe.lead import BLOCK_SIZE, Lead, t_quantile

ALLOWANCE = 0.05  # probability of a false claim, over all looks at one sealed window
N_FINALISTS = 5  # trials considered for reruns at the close: the order by one seed is noisy
SEED_SPREADS = 2.0  # standard errors of seed noise by which fresh seeds must beat the base
POWER = 0.8  # of the smallest lead that a look confirms


class Standing(StrEnum):
    """Decision on a trial."""

    KNOWN = "known"  # the base, or judged before in this session: not counted
    PRUNED = "pruned"  # stopped early, infeasible or failed: counted, without a lead
    NOT_ABOVE = "not above"
    RERUN = "rerun"  # above the luck bar and the kept one: train it again with two fresh seeds
    SEED_NOISE = "seed noise"
    NOT_ABOVE_AFTER_RERUNS = "not above after reruns"
    KEPT = "kept"


class Outcome(StrEnum):
    """Claim that a look at the sealed window allows."""

    WINNER = "winner"
    IMPROVEMENT = "improvement"  # leads the base, but not every plain baseline
    NOT_CONFIRMED = "not confirmed"


@dataclass(frozen=True)
class SearchBase:
    """Unchanged configuration that every trial is compared with."""

    key: str  # hash of the configuration
    sharpes: tuple[float, ...]  # annual, on validation, by seed

    @property
    def sharpe(self) -> float:
        """Mean over seeds."""
        return fmean(self.sharpes)


@dataclass(frozen=True)
class Reruns:
    """Results of a trial's two fresh seeds; empty if one of them has none."""

    sharpes: tuple[float, float] | None = None  # annual, on validation
    lead: Lead | None = None  # of all three seeds


@dataclass(frozen=True)
class SearchTrial:
    """Row of a search session."""

    key: str  # hash of the configuration
    n_changes: int  # knobs that differ from the base; of equal leads the simpler one counts
    lead: Lead | None  # of the first seed; None if pruned
    reruns: Reruns | None = None
    standing: Standing = Standing.PRUNED

    @property
    def current_lead(self) -> Lead | None:
        """Lead of all seeds trained so far; None if one has no result."""
        return self.reruns.lead if self.reruns else self.lead


@dataclass(frozen=True)
class SearchState:
    """Trials of a session so far, and the one that counts as best."""

    base: SearchBase
    earlier: frozenset[str] = frozenset()  # keys that other sessions judged on overlapping validation data
    trials: Mapping[str, SearchTrial] = field(default_factory=dict)  # by key, in order
    kept: SearchTrial | None = None

    @cached_property
    def n_configurations(self) -> int:
        """Different configurations ever judged on the validation data."""
        return len(self.earlier | self.trials.keys())

    @property
    def bar(self) -> float:
        """Luck bar in standard errors."""
        return luck_bar(self.n_configurations)

    @property
    def is_above_luck(self) -> bool:
        """Whether the kept trial is above the luck bar: only then may the close open a look at the sealed window."""
        return self.kept is not None and _rank(self.kept)[0] > self.bar

    @property
    def best(self) -> SearchTrial | None:
        """Kept trial if above luck, else the one with the highest t, seed noise left out; None without a lead."""
        if self.is_above_luck:
            return self.kept
        scored = [
            trial for trial in self.trials.values() if trial.current_lead and trial.standing != Standing.SEED_NOISE
        ]
        return max(scored, key=_rank, default=None)

    def sharpe_of(self, trial: SearchTrial | None) -> float | None:
        """Annual net Sharpe ratio of a trial on validation, over all its seeds; None without a result."""
        return self.base.sharpe + trial.current_lead.difference if trial and trial.current_lead else None

    @property
    def luck_lead(self) -> float | None:
        """Lead that luck alone reaches, by the error of the best trial; None before any result."""
        best = self.best
        return self.bar * best.current_lead.standard_error if best and best.current_lead else None

    @property
    def luck_sharpe(self) -> float | None:
        """Sharpe ratio at that lead."""
        lead = self.luck_lead
        return None if lead is None else self.base.sharpe + lead

    @property
    def finalists(self) -> list[str]:
        """Keys to rerun at the close: of the five highest by first seed, those above the bar and not yet rerun."""
        first = {key: _rank(replace(trial, reruns=None)) for key, trial in self.trials.items()}
        highest, bar = sorted(first, key=first.__getitem__, reverse=True)[:N_FINALISTS], self.bar
        return [key for key in highest if first[key][0] > bar and self.trials[key].reruns is None]


@dataclass(frozen=True)
class TrialDecision:
    """Decision on a trial after its first seed."""

    standing: Standing
    is_counted: bool  # as a new configuration on the validation data
    n_configurations: int
    bar: float


@dataclass(frozen=True)
class RerunDecision:
    """Decision on a trial after its fresh seeds."""

    standing: Standing
    bar: float
    seed_deviation: float | None = None  # standard deviation of the Sharpe ratio between seeds
    fresh_lead: float | None = None  # mean Sharpe ratio of the fresh seeds less that of the base
    required_lead: float | None = None  # that `fresh_lead` must exceed


@dataclass(frozen=True)
class LookVerdict:
    """Verdict of one look at the sealed window."""

    look: int
    over_base: Lead
    over_plain: Mapping[str, Lead]  # by name of the plain baseline
    periods_per_year: int

    @property
    def n_years(self) -> float:
        """Length of the sealed window."""
        return self.over_base.n_blocks * BLOCK_SIZE / self.periods_per_year

    @property
    def not_beaten(self) -> list[str]:
        """Plain baselines over which the lead is not confirmed."""
        return [name for name, lead in self.over_plain.items() if not is_confirmed(lead.p_value, self.look)]

    @property
    def outcome(self) -> Outcome:
        """Claim: a winner leads the base and every plain baseline at the level of the look."""
        if not is_confirmed(self.over_base.p_value, self.look):
            return Outcome.NOT_CONFIRMED
        return Outcome.IMPROVEMENT if self.not_beaten else Outcome.WINNER


def judge_trial(state: SearchState, trial: SearchTrial) -> tuple[SearchState, TrialDecision]:
    """Judge a trial by its first seed; a known key changes nothing, whatever its seed."""
    if trial.key == state.base.key or trial.key in state.trials:
        return state, TrialDecision(
            Standing.KNOWN, is_counted=False, n_configurations=state.n_configurations, bar=state.bar
        )
    counted = replace(state, trials={**state.trials, trial.key: trial})
    standing = Standing.RERUN if _is_ahead(counted, trial) else Standing.NOT_ABOVE if trial.lead else Standing.PRUNED
    judged = replace(counted, trials={**counted.trials, trial.key: replace(trial, standing=standing)})
    return judged, TrialDecision(
        standing, counted.n_configurations > state.n_configurations, counted.n_configurations, counted.bar
    )


def judge_reruns(state: SearchState, key: str, reruns: Reruns) -> tuple[SearchState, RerunDecision]:
    """Judge a trial again, by its fresh seeds and by all three, and keep it if it is the best."""
    trial = replace(state.trials[key], reruns=reruns)
    if reruns.sharpes is None:
        judged = replace(trial, standing=Standing.NOT_ABOVE_AFTER_RERUNS)
        return replace(state, trials={**state.trials, key: judged}), RerunDecision(judged.standing, state.bar)
    pairs = [row.reruns.sharpes for row in (*state.trials.values(), trial) if row.reruns and row.reruns.sharpes]
    deviation = seed_deviation(state.base.sharpes, pairs)
    fresh_lead = fmean(reruns.sharpes) - state.base.sharpe
    required = SEED_SPREADS * deviation * sqrt(1 / len(reruns.sharpes) + 1 / len(state.base.sharpes))
    if fresh_lead <= required:
        standing = Standing.SEED_NOISE
    else:
        standing = Standing.KEPT if _is_ahead(state, trial) else Standing.NOT_ABOVE_AFTER_RERUNS
    judged = replace(trial, standing=standing)
    kept = judged if standing == Standing.KEPT else state.kept
    decision = RerunDecision(standing, state.bar, deviation, fresh_lead, required)
    return replace(state, trials={**state.trials, key: judged}, kept=kept), decision


def seed_deviation(base: tuple[float, ...], pairs: list[tuple[float, float]]) -> float:
    """Standard deviation of the Sharpe ratio between seeds, from those of the base and pairs of fresh seeds."""
    return sqrt(fmean([*[variance(base)] * (len(base) - 1), *map(variance, pairs)]))


def look_level(look: int) -> float:
    """Probability of a false claim at a look, counted from 1; over all looks they add up to the allowance."""
    return ALLOWANCE / (look * (look + 1))


def share_spent(look: int) -> float:
    """Share of the allowance that is spent after a look."""
    return look / (look + 1)


def is_confirmed(p_value: float, look: int) -> bool:
    """Whether a lead with this p value on the sealed window may be claimed at a look."""
    return p_value <= look_level(look)


def smallest_confirmed_lead(standard_error: float, n_blocks: int, look: int) -> float:
    """True lead that a look confirms four times in five, by the standard error on the sealed window."""
    return standard_error * (t_quantile(look_level(look), n_blocks) + float(scipy.special.ndtri(POWER)))


def smallest_visible_lead(validated: Lead, n_sealed: int, look: int) -> float:
    """True lead that a look at a sealed window of `n_sealed` sessions confirms four times in five.

    The error on it is that of the lead on validation, scaled by the square root of their lengths.
    """
    n_blocks = n_sealed // BLOCK_SIZE
    return smallest_confirmed_lead(validated.standard_error * sqrt(validated.n_blocks / n_blocks), n_blocks, look)


def require_sealed_window(n_sessions: int, periods_per_year: int) -> None:
    """Raise a ValueError if a sealed window is too short for a t of its blocks."""
    if n_sessions < periods_per_year:
        raise ValueError(
            f"a sealed window must have a year of sessions ({periods_per_year}) or more, but has {n_sessions}; "
            "seal it from an earlier day"
        )


def _rank(trial: SearchTrial) -> tuple[float, int]:
    """Order of trials: by t, pruned ones last; of equal ones the simpler is first."""
    return trial.current_lead.t if trial.current_lead else -inf, -trial.n_changes


def _is_ahead(state: SearchState, trial: SearchTrial) -> bool:
    """Whether a trial is above the luck bar and ahead of the kept one."""
    rank = _rank(trial)
    return rank[0] > state.bar and (state.kept is None or rank > _rank(state.kept))
