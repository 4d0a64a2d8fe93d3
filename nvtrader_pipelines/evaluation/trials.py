"""The trials on one market: net returns of every run, and of what it is held against, over the sessions all share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.statistics import NO_SPREAD

FloatArray = NDArray[np.float64]
Days = NDArray[np.datetime64]

ANCHORS = ("anchor", "equal_weight")  # baselines that a run's policy starts from, the first that it has


@dataclass(frozen=True)
class Period:
    """Sessions from the first day to the last; the name is the one that verdicts give them."""

    name: str
    first: date
    last: date


@dataclass(frozen=True, eq=False)
class Trials:
    """Net returns per session of N trials, of the best baseline of each and of its anchor.

    A trial's best baseline is that of its own run with the highest Sharpe ratio over these sessions, known only
    afterwards; its anchor is its run's baseline `anchor`, else `equal_weight`, else its best baseline.

    Raises:
        ValueError: if lengths differ, a trial is named twice or some returns are not finite.
    """

    names: tuple[str, ...]  # ids of the runs
    sessions: Days  # (T,)
    net: FloatArray  # (T, N)
    best_baseline: FloatArray  # (T, N)
    anchor: FloatArray  # (T, N)
    best_baselines: tuple[str, ...]  # the name of each
    anchors: tuple[str, ...]
    without_returns: tuple[str, ...] = ()  # trials that were run and count, but whose returns are lost

    def __post_init__(self) -> None:
        shape = (len(self.sessions), len(self.names))
        found = {"net": self.net.shape, "best_baseline": self.best_baseline.shape, "anchor": self.anchor.shape}
        named = {len(self.names), len(self.best_baselines), len(self.anchors)}
        if set(found.values()) != {shape} or len(named) > 1 or len(set(self.names)) < len(self.names):
            raise ValueError(
                f"trials need returns of shape {shape}, a row for each session and a column for each of the names, "
                f"which are different, but the shapes are {found}; names: {', '.join(self.names)}"
            )
        for name in found:
            bad = ~np.isfinite(getattr(self, name))
            if bad.any():
                column = int(np.argmax(bad.any(axis=0)))
                raise ValueError(
                    f"trials need finite returns, but {name} of {self.names[column]} has {int(bad[:, column].sum())} "
                    "NaN or infinite; evaluate the run again"
                )

    @property
    def n_ever(self) -> int:
        """How many were ever run, those whose returns are lost included."""
        return len(self.names) + len(self.without_returns)


@dataclass(frozen=True, eq=False)
class RunReturns:
    """Net returns of one run's own account and of its baselines, over the sessions of the run."""

    sessions: Days  # (T,), ascending
    net: FloatArray  # (T,)
    baselines: FloatArray  # (T, B)
    baseline_names: tuple[str, ...]

    def during(self, sessions: Days) -> "RunReturns":
        """Over some of its sessions."""
        at = np.searchsorted(self.sessions, sessions)
        return RunReturns(sessions, self.net[at], self.baselines[at], self.baseline_names)


def run_returns(curves: pl.DataFrame) -> dict[str, RunReturns]:
    """Run to its returns.

    Args:
        curves: run_id, policy, kind, session and net_return of the ensemble and the baselines of some runs; other
            kinds are left out.

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
        raise ValueError(
            f"a trial needs one ensemble and at least one baseline, but run {run_id} has {len(ensembles)} and "
            f"{len(baselines)}; evaluate the run again"
        )
    sessions = ensembles[0]["session"]
    if sessions.n_unique() < len(sessions) or any(not each["session"].equals(sessions) for each in baselines.values()):
        lengths = ", ".join(f"{name}: {len(account)}" for name, account in baselines.items())
        raise ValueError(
            f"a trial needs every account once on the same sessions, but run {run_id} has {len(sessions)} of its own "
            f"and of its baselines {lengths}; evaluate the run again"
        )
    return RunReturns(
        sessions=sessions.to_numpy().astype("datetime64[D]"),
        net=ensembles[0]["net_return"].to_numpy(),
        baselines=np.column_stack([account["net_return"].to_numpy() for account in baselines.values()]),
        baseline_names=tuple(baselines),
    )


def trials_of(runs: pl.DataFrame, curves: pl.DataFrame, period: Period) -> Trials:
    """The trials over the sessions of a period that all of them share.

    Args:
        runs: run_id of every trial ever run on the market, in the order to keep.
        curves: as `run_returns` wants them; a run without any is counted in `without_returns`.
        period: days to take.

    Raises:
        ValueError: as `run_returns` and `Trials`.
    """
    wanted = runs["run_id"].to_list()
    inside = pl.col("run_id").cast(pl.String).is_in(wanted) & pl.col("session").is_between(period.first, period.last)
    of_run = run_returns(curves.filter(inside))
    return align(wanted, of_run, shared_sessions([of_run[name] for name in wanted if name in of_run], period))


def shared_sessions(runs: Sequence[RunReturns], period: Period) -> Days:
    """The sessions of a period that all the runs have."""
    if not runs:
        return np.array([], dtype="datetime64[D]")
    shared = runs[0].sessions
    for run in runs[1:]:
        shared = np.intersect1d(shared, run.sessions, assume_unique=True)
    return shared[(shared >= np.datetime64(period.first)) & (shared <= np.datetime64(period.last))]


def align(names: Sequence[str], of_run: Mapping[str, RunReturns], sessions: Days) -> Trials:
    """The trials of these names over these sessions, all of which they have."""
    known = [name for name in names if name in of_run]
    runs = [of_run[name].during(sessions) for name in known]
    best = [int(np.argmax(sharpe_ratios(run.baselines))) for run in runs]
    anchors = [
        next((run.baseline_names.index(name) for name in ANCHORS if name in run.baseline_names), i)
        for run, i in zip(runs, best, strict=True)
    ]

    def columns(of: Sequence[FloatArray]) -> FloatArray:
        return np.column_stack(of) if of else np.empty((len(sessions), 0))

    return Trials(
        names=tuple(known),
        sessions=sessions,
        net=columns([run.net for run in runs]),
        best_baseline=columns([run.baselines[:, i] for run, i in zip(runs, best, strict=True)]),
        anchor=columns([run.baselines[:, i] for run, i in zip(runs, anchors, strict=True)]),
        best_baselines=tuple(run.baseline_names[i] for run, i in zip(runs, best, strict=True)),
        anchors=tuple(run.baseline_names[i] for run, i in zip(runs, anchors, strict=True)),
        without_returns=tuple(name for name in names if name not in of_run),
    )


def periods_of(runs: pl.DataFrame, evaluations: pl.DataFrame) -> dict[str, list[Period]]:
    """Market source to the periods that verdicts on it name; each is as long as the longest that is called so.

    Args:
        runs: run_id and source.
        evaluations: run_id, period, first_session and last_session; folds are left out.
    """
    verdicts = evaluations.filter(pl.col("period") != "fold").join(runs.select("run_id", "source"), on="run_id")
    spans = (
        verdicts.group_by("source", "period")
        .agg(pl.col("first_session").min(), pl.col("last_session").max())
        .sort("source", "period")
    )
    found: dict[str, list[Period]] = {}
    for source, *period in spans.iter_rows():
        found.setdefault(source, []).append(Period(*period))
    return found


def varies(returns: FloatArray) -> NDArray[np.bool_]:
    """Which columns (T, N) are more than one number again and again."""
    return np.asarray(returns.std(axis=0, ddof=1) > NO_SPREAD * np.abs(returns).max(axis=0))


def sharpe_ratios(returns: FloatArray) -> FloatArray:
    """Sharpe ratio per session (ddof 1) of each column (T, N); 0 where it never varies, or there are fewer than two."""
    if len(returns) < 2:
        return np.zeros(returns.shape[1])
    mean = returns.mean(axis=0)
    return np.divide(mean, returns.std(axis=0, ddof=1), out=np.zeros_like(mean), where=varies(returns))


def mean_correlation(returns: FloatArray) -> float:
    """Mean correlation of two columns (T, N), of those that vary.

    Raises:
        ValueError: if fewer than two do.
    """
    moving = returns[:, varies(returns)]
    n = moving.shape[1]
    if n < 2:
        raise ValueError(f"a correlation needs two trials whose returns vary, but there are {n}")
    return float((np.corrcoef(moving, rowvar=False).sum() - n) / (n * (n - 1)))
