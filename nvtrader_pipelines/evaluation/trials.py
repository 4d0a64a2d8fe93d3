"""Trials on one market: net returns of every run and of its references."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Literal, TypeVar, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.alpha import residual_returns
from nvtrader_pipelines.evaluation.sharpe.deflation import Deflation
from nvtrader_pipelines.evaluation.sharpe.inference import MIN_OBSERVATIONS
from nvtrader_pipelines.evaluation.statistics import varies

FloatArray = NDArray[np.float64]
Days = NDArray[np.datetime64]

Against = Literal["zero", "best_baseline", "anchor"]
AGAINST: tuple[Against, ...] = get_args(Against)
NOT_RANKED = "validation only (trained on sessions after its tests): counts as a trial, but is not ranked"
ANCHORS = ("anchor", "equal_weight")  # names of the anchor among the baselines, in order of preference


@dataclass(frozen=True)
class Period:
    """Period of a verdict, by its name, first and last day."""

    name: str
    first: date
    last: date


@dataclass(frozen=True, eq=False)
class Trial:
    """Net returns per session of a run, its best baseline and its anchor, over its sessions of a period.

    The best baseline is the run's baseline with the highest Sharpe ratio over these sessions, picked with hindsight;
    the anchor is the baseline `anchor`, else `equal_weight`, else the best baseline.

    Raises:
        ValueError: if lengths differ or some returns are not finite.
    """

    name: str  # run id
    sessions: Days  # (T,)
    net: FloatArray  # (T,)
    best_baseline: FloatArray  # (T,)
    anchor: FloatArray  # (T,)
    best_baseline_name: str
    anchor_name: str
    periods_per_year: int  # of the market
    validation_only: bool = False  # policies were trained on sessions after their tests

    def __post_init__(self) -> None:
        shape = self.sessions.shape
        series = {"net": self.net, "best_baseline": self.best_baseline, "anchor": self.anchor}
        if any(returns.shape != shape for returns in series.values()):
            shapes = {name: returns.shape for name, returns in series.items()}
            raise ValueError(f"trial {self.name}: {shape} sessions, but returns {shapes}")
        for name, returns in series.items():
            n_bad = int((~np.isfinite(returns)).sum())
            if n_bad:
                raise ValueError(f"{n_bad} of {name} of {self.name} are not finite; evaluate the run again")

    @property
    def unranked_reason(self) -> str | None:
        """Why the trial counts but is not ranked; None if it is ranked."""
        if self.validation_only:
            return NOT_RANKED
        n = len(self.sessions)
        if n >= MIN_OBSERVATIONS:
            return None
        return f"{n} {'session' if n == 1 else 'sessions'} in the period, {MIN_OBSERVATIONS} needed"

    def reference(self, against: Against) -> tuple[str, FloatArray] | None:
        """Name and returns (T,) of the reference; None against zero."""
        if against == "zero":
            return None
        if against == "anchor":
            return self.anchor_name, self.anchor
        return self.best_baseline_name, self.best_baseline

    def returns(self, against: Against) -> FloatArray:
        """Net returns (T,), or residual returns over the reference."""
        reference = self.reference(against)
        return self.net if reference is None else residual_returns(self.net, reference[1])

    @cached_property
    def sharpe(self) -> dict[Against, float]:
        """Sharpe ratio per session by reference; an information ratio unless against zero."""
        return {against: float(sharpe_ratios(self.returns(against)[:, None])[0]) for against in AGAINST}


@dataclass(frozen=True, eq=False)
class SearchReturns:
    """Net returns of a search trial over its validation, whatever the period of a verdict; it has no baselines."""

    name: str  # of the configuration on its validation
    sessions: Days  # (T,)
    net: FloatArray | None  # (T,); None if they are not stored
    periods_per_year: int  # of the market
    unranked_reason: None = None

    @cached_property
    def sharpe(self) -> dict[Against, float]:
        """Sharpe ratio per session against zero; empty without returns."""
        return {} if self.net is None else {"zero": float(sharpe_ratios(self.net[:, None])[0])}


AnyTrial = TypeVar("AnyTrial", bound=Trial | SearchReturns)


@dataclass(frozen=True, eq=False)
class Trials:
    """All trials on one market in one period, each over its own sessions.

    Raises:
        ValueError: if names are not unique.
    """

    known: tuple[Trial, ...]
    without_returns: tuple[str, ...] = ()  # ids of runs that count, but have no returns on record

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"trials need different names, but they are {', '.join(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the trials with returns."""
        return tuple(trial.name for trial in self.known)

    @property
    def n_trials(self) -> int:
        """Number of trials ever run, with or without returns on record."""
        return len(self.known) + len(self.without_returns)

    def deflation(self, trial: Trial, against: Against) -> Deflation:
        """Deflation of a trial for all trials; each counts by the share of the trial's sessions that it covers."""
        return deflation_of(self.known, trial, against, self.n_trials)

    def comparable(self) -> tuple[Trial, ...]:
        """Ranked trials over the longest window of sessions.

        Of equally long windows, the one with the most trials counts; of those, the first.
        """
        windows = {trial.name: trial.sessions.tobytes() for trial in self.known if not trial.unranked_reason}
        frequency = Counter(windows.values())
        longest = max(frequency, key=lambda window: (len(window), frequency[window]), default=None)
        return tuple(trial for trial in self.known if longest and windows.get(trial.name) == longest)


def deflation_trials(trials: Iterable[AnyTrial]) -> list[AnyTrial]:
    """Ranked trials of at least a year of sessions; all ranked ones if fewer than two are as long.

    The Sharpe ratio of a few weeks is noise, and would inflate the variance that deflates all trials.
    """
    ranked = [trial for trial in trials if not trial.unranked_reason]
    long = [trial for trial in ranked if len(trial.sessions) >= trial.periods_per_year]
    return long if len(long) >= 2 else ranked


def shared_fraction(sessions: Days, other: Days) -> float:
    """Fraction of the sessions between the first and the last session of another trial on the market."""
    if not len(sessions) or not len(other):
        return 0.0
    begin, end = np.searchsorted(sessions, other[0]), np.searchsorted(sessions, other[-1], side="right")
    return float(end - begin) / len(sessions)


def deflation_of(
    known: Iterable[Trial | SearchReturns], trial: Trial | SearchReturns, against: Against, n_trials: int
) -> Deflation:
    """Deflation of a trial for the known ones, itself included, and `n_trials` in all.

    A ranked trial counts by the share of the trial's sessions that it covers; every other one counts as one. The
    variance is of the ranked trials that share sessions and have such a ratio.
    """
    ranked = [trial for trial in known if not trial.unranked_reason]
    shares = {earlier.name: shared_fraction(trial.sessions, earlier.sessions) for earlier in ranked}
    used = deflation_trials(trial for trial in ranked if against in trial.sharpe and shares[trial.name] > 0.0)
    return Deflation.of(
        np.array([trial.sharpe[against] for trial in used]),
        np.array([shares[trial.name] for trial in used]),
        n_trials,
        n_trials - len(shares) + sum(shares.values()),
    )


@dataclass(frozen=True, eq=False)
class RunReturns:
    """Net returns of one run's ensemble and baselines over its sessions."""

    sessions: Days  # (T,), ascending
    net: FloatArray  # (T,)
    baselines: FloatArray  # (T, B)
    baseline_names: tuple[str, ...]

    def trial(self, name: str, period: Period, periods_per_year: int, *, validation_only: bool) -> Trial:
        """Restrict the returns to a period, as a trial of this name."""
        inside = (self.sessions >= np.datetime64(period.first)) & (self.sessions <= np.datetime64(period.last))
        baselines, names = self.baselines[inside], self.baseline_names
        best = int(np.argmax(sharpe_ratios(baselines)))
        anchor = next((names.index(anchor) for anchor in ANCHORS if anchor in names), best)
        return Trial(
            name=name,
            sessions=self.sessions[inside],
            net=self.net[inside],
            best_baseline=baselines[:, best],
            anchor=baselines[:, anchor],
            best_baseline_name=names[best],
            anchor_name=names[anchor],
            periods_per_year=periods_per_year,
            validation_only=validation_only,
        )


def run_returns(curves: pl.DataFrame) -> dict[str, RunReturns]:
    """Returns by run id.

    Args:
        curves: run_id, policy, kind, session and net_return of the runs' accounts; kinds other than ensemble and
            baseline are ignored.

    Raises:
        ValueError: if a run has not exactly one ensemble and at least one baseline, all on the same sessions once.
    """
    accounts = curves.filter(pl.col("kind").cast(pl.String).is_in(["ensemble", "baseline"]))
    by_run = accounts.partition_by("run_id", as_dict=True, maintain_order=True)
    return {str(run_id): _returns(str(run_id), rows) for (run_id,), rows in by_run.items()}


def _returns(run_id: str, rows: pl.DataFrame) -> RunReturns:
    ordered = rows.sort("session", maintain_order=True)
    accounts = {
        (str(kind), str(policy)): account
        for (kind, policy), account in ordered.partition_by("kind", "policy", as_dict=True, maintain_order=True).items()
    }
    ensembles = [account for (kind, _), account in accounts.items() if kind == "ensemble"]
    baselines = {name: account for (kind, name), account in sorted(accounts.items()) if kind == "baseline"}
    if len(ensembles) != 1 or not baselines:
        raise ValueError(f"run {run_id} needs 1 ensemble, 1+ baselines, but has {len(ensembles)}, {len(baselines)}")
    sessions = ensembles[0]["session"]
    if sessions.n_unique() < len(sessions) or any(
        not baseline["session"].equals(sessions) for baseline in baselines.values()
    ):
        lengths = ", ".join(f"{name}: {len(account)}" for name, account in baselines.items())
        raise ValueError(f"run {run_id} needs the same sessions of all accounts, but has {len(sessions)} and {lengths}")
    return RunReturns(
        sessions=sessions.to_numpy().astype("datetime64[D]"),
        net=ensembles[0]["net_return"].to_numpy(),
        baselines=np.column_stack([account["net_return"].to_numpy() for account in baselines.values()]),
        baseline_names=tuple(baselines),
    )


def trials_of(runs: pl.DataFrame, curves: pl.DataFrame, period: Period, periods_per_year: int) -> Trials:
    """Trials in a period, each over its own sessions there.

    Runs are run_id and validation_only of every trial ever run on the market, in the order of the result; those without
    curves (as for `run_returns`) go to `without_returns`.

    Raises:
        ValueError: as `run_returns`, `Trial` and `Trials`.
    """
    own = curves.filter(pl.col("run_id").cast(pl.String).is_in(runs["run_id"].to_list()))
    return trials_in_period(runs, run_returns(own), period, periods_per_year)


def trials_in_period(
    runs: pl.DataFrame, returns: Mapping[str, RunReturns], period: Period, periods_per_year: int
) -> Trials:
    """Trials in a period from returns by run id; trials without returns or sessions count too.

    Raises:
        ValueError: as `Trial` and `Trials`.
    """
    named: list[tuple[str, bool]] = runs.select("run_id", "validation_only").rows()
    return Trials(
        known=tuple(
            returns[name].trial(name, period, periods_per_year, validation_only=only)
            for name, only in named
            if name in returns
        ),
        without_returns=tuple(name for name, _ in named if name not in returns),
    )


def periods_of(runs: pl.DataFrame, evaluations: pl.DataFrame) -> dict[str, list[Period]]:
    """Periods of verdicts by market source, each as long as the longest of its name.

    Validation-only runs are ignored: they are tested on sessions that others train on. Folds are left out.
    """
    ranked = runs.filter(~pl.col("validation_only")).select("run_id", "source")
    verdicts = evaluations.filter(pl.col("period") != "fold").join(ranked, on="run_id")
    spans = (
        verdicts.group_by("source", "period")
        .agg(pl.col("first_session").min(), pl.col("last_session").max())
        .sort("source", "period")
    )
    periods: dict[str, list[Period]] = {}
    for source, *period in spans.iter_rows():
        periods.setdefault(source, []).append(Period(*period))
    return periods


@takes_arrays
def sharpe_ratios(returns: FloatArray) -> FloatArray:
    """Sharpe ratio per session (ddof 1) of each column (T, N); 0 where constant or T < 2."""
    if len(returns) < 2:
        return np.zeros(returns.shape[1])
    mean = returns.mean(axis=0)
    return np.divide(mean, returns.std(axis=0, ddof=1), out=np.zeros_like(mean), where=varies(returns))


@takes_arrays
def mean_correlation(returns: FloatArray) -> float:
    """Mean pairwise correlation of the columns (T, N) that vary.

    Raises:
        ValueError: if fewer than two vary.
    """
    moving = returns[:, varies(returns)]
    n = moving.shape[1]
    if n < 2:
        raise ValueError(f"a correlation needs two trials whose returns vary, got {n}")
    return float((np.corrcoef(moving, rowvar=False).sum() - n) / (n * (n - 1)))
