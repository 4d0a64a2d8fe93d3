"""One judge for every kind of policy: the same sessions, fills, costs, leverage and start in cash."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.dynamics import resolve_fill
from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.account_tables import ACTION_LOG, EQUITY
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest, walk
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.evaluation.splits.fold import MIN_TEST_SESSIONS
from nvtrader_pipelines.evaluation.steps import Steps
from nvtrader_pipelines.evaluation.weights_backtest import STANDARD_EXECUTION, Execution
from nvtrader_pipelines.market.panel import MarketPanel, panel_digest
from nvtrader_pipelines.policies.policy import Decision, Policy
from nvtrader_pipelines.scoreboard.candidates import Candidate, Untimed
from nvtrader_pipelines.scoreboard.scorecard import Contest

LEAST_SESSIONS = 252  # that an entrant must leave of the window of the others; our choice
ROUNDING = 1e-9  # how far weights may be from what they must be


@dataclass(frozen=True)
class Meter:
    """What the judge measures by."""

    clock: Callable[[], float]  # seconds, never backwards
    memory: Callable[[], int]  # bytes that the process holds


class Contenders(NamedTuple):
    """Who takes part in a contest, and why the others do not."""

    contest: Contest
    admitted: tuple[Candidate, ...]
    refused: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Walked:
    """What one entrant did in the window."""

    candidate: Candidate
    panel: MarketPanel
    curves: pl.DataFrame  # EQUITY, one account
    actions: pl.DataFrame  # ACTION_LOG
    seconds: float
    latencies: NDArray[np.float64]  # (D,) seconds from a close to the weights
    peak_memory: int  # bytes
    n_acted: int = 0  # decisions whose weights the timing of its pipeline changed
    untimed: pl.DataFrame | None = None  # EQUITY of its twin without the timing, on an account of its own


def contenders(
    whole: MarketPanel,
    candidates: Sequence[Candidate],
    panels: Mapping[str, MarketPanel],
    execution: Execution = STANDARD_EXECUTION,
) -> Contenders:
    """The contest of one source: the sessions up to the last one that everybody may be judged on.

    The window begins where the last of the entrants may be judged. A year must be left of it; where nobody learned may
    be judged for a year, as much as the longest run has, or without runs the longest of the learned. Who would leave
    less is refused, whatever its place in the sequence.

    Args:
        whole: the source's panel of all names.
        candidates: the entrants on this source, with different names.
        panels: the panel that each of them decides on, by its name.
        execution: fills, costs and leverage of all of them; interest is the standard one.

    Raises:
        ValueError: if the market has fewer than two sessions.
    """
    admitted, refused, end = [], {}, len(whole.sessions) - 1
    firsts: dict[str, int] = {}
    for candidate in candidates:
        try:
            firsts[candidate.name] = _first_of(candidate, whole, panels[candidate.name])
        except ValueError as error:
            refused[candidate.name] = str(error)
    least = _least([(each, end - firsts[each.name] + 1) for each in candidates if each.name in firsts])
    start = 1  # the first decision is made at the close before
    for candidate in (each for each in candidates if each.name in firsts):
        try:
            first = max(start, firsts[candidate.name])
            _require_window(candidate, whole, (start, first), least)
            candidate.require_unseen((whole.sessions[first].item(), whole.sessions[end].item()))
        except ValueError as error:
            refused[candidate.name] = str(error)
        else:
            admitted.append(candidate)
            start = first
    contest = Contest(
        source=whole.source,
        panel_digest=panel_digest(whole),
        first_session=whole.sessions[start].item(),
        last_session=whole.sessions[end].item(),
        n_sessions=end - start + 1,
        fill=resolve_fill(execution.fill, whole),
        costs=execution.costs,
        gross_limit=execution.gross_limit,
    )
    return Contenders(contest, tuple(admitted), refused)


def _first_of(candidate: Candidate, whole: MarketPanel, panel: MarketPanel) -> int:
    """The first session of the whole market that an entrant alone might be judged on."""
    first = max(1, whole.index_of(np.datetime64(candidate.first_unseen(panel))))
    candidate.require_unseen((whole.sessions[first].item(), whole.sessions[-1].item()))
    return first


def _least(alone: Sequence[tuple[Candidate, int]]) -> int:
    """The fewest sessions that must be left, from how many each entrant alone might be judged on."""
    learned = [(each.kind, n_sessions) for each, n_sessions in alone if each.is_bound]
    longest = max((n_sessions for _, n_sessions in learned), default=0)
    runs = [n_sessions for kind, n_sessions in learned if kind == "run"]  # that a file drives no run out
    wanted = LEAST_SESSIONS if longest >= LEAST_SESSIONS else max(runs, default=longest)
    return max(MIN_TEST_SESSIONS, wanted)


def _require_window(candidate: Candidate, whole: MarketPanel, starts: tuple[int, int], least: int) -> None:
    """Refuse an entrant that would cut the window shorter than the least that must remain."""
    after = len(whole.sessions) - starts[1]
    if after < least:
        sessions, trained = whole.sessions, candidate.trained
        card = f" was by its card trained from {trained[0].first} to {trained[-1].last} and" if trained else ""
        raise ValueError(
            f"{candidate.name}{card} may be judged from {sessions[starts[1]]} on only, which leaves {after} sessions "
            f"of the window {sessions[starts[0]]} to {sessions[-1]}, of which at least {least} must remain; train it "
            "on earlier sessions, or judge it in a home without those whose window it is"
        )


def judging_environment(contest: Contest, rebal_freq: int) -> EnvSpec:
    """The contest's fills and costs, at one entrant's cadence; what a reward would be plays no part."""
    return EnvSpec(
        rebal_freq=rebal_freq,
        turnover_cost_bps=0.0,
        vol_penalty=0.0,
        costs=contest.costs,
        fill=contest.fill,
        rewards=(LogGrowth(),),
    )


def walked(
    candidate: Candidate,
    panel: MarketPanel,
    contest: Contest,
    meter: Meter,
    told: Callable[[float], None] = lambda _: None,
) -> Walked:
    """Walk an entrant's own account through the contest's window; `told` hears the share that is done.

    Where its pipeline has a timing, its twin without it walks through the same window.

    Raises:
        ValueError: if it was trained on a session of the window, cannot be opened on this panel, or wants what is no
            portfolio within the gross limit.
    """
    candidate.require_unseen(contest.window)
    first, last = _indices(candidate, panel, contest)
    began = meter.clock()
    policy = JudgedPolicy(candidate.name, candidate.open(panel, contest.window), contest.gross_limit, meter.clock)
    kind = "baseline" if candidate.kind == "baseline" else "ensemble"
    who = [PolicyAccount(candidate.name, kind, (None,), (policy,))]
    window = [Fold(0, 0, first - 1, first, last)]
    environment = judging_environment(contest, candidate.rebal_freq)
    steps = Steps(walk(panel, environment, window, who))
    peak, n_acted = meter.memory(), 0
    for step in steps:
        peak = max(peak, meter.memory())
        n_acted += _timing_acted(candidate.untimed, step.decisions[0])
        told((step.t - first + 1) / (last - first + 1))
    seconds, record = meter.clock() - began, steps.result
    untimed = None
    if candidate.untimed is not None:
        twin = PolicyAccount(candidate.name, kind, (None,), (candidate.untimed.open(panel, contest.window),))
        untimed = backtest(panel, environment, window, [twin]).equity_curves.select(list(EQUITY))
    return Walked(
        candidate=candidate,
        panel=panel,
        curves=record.equity_curves.select(list(EQUITY)),
        actions=record.action_logs.select(list(ACTION_LOG)),
        seconds=seconds,
        latencies=np.array(policy.latencies),
        peak_memory=peak,
        n_acted=n_acted,
        untimed=untimed,
    )


def _timing_acted(untimed: Untimed | None, decision: Decision) -> bool:
    """Whether the timing of the entrant's pipeline changed the weights of a decision."""
    if untimed is None or decision.pipeline is None:
        return False
    return any(stage.name == untimed.timing and stage.reason for stage in decision.pipeline.stages)


def _indices(candidate: Candidate, panel: MarketPanel, contest: Contest) -> tuple[int, int]:
    """First and last session of the window on the entrant's own panel."""
    sessions, (begin, end) = panel.sessions, contest.window
    first, last = panel.index_of(np.datetime64(begin)), panel.index_of(np.datetime64(end))
    if last >= len(sessions) or first < 1 or last - first + 1 != contest.n_sessions:
        raise ValueError(
            f"{candidate.name} must have a market on each of the {contest.n_sessions} sessions from {begin} to {end} "
            f"and on the one before, but its names have bars from {sessions[0]} to {sessions[-1]}; name others, or "
            "deliver the bars that are missing"
        )
    if resolve_fill(contest.fill, panel) != contest.fill:
        raise ValueError(
            f"orders of {candidate.name} must fill at the {contest.fill} as those of the others, but its names have no "
            "opens; deliver them, or name others"
        )
    return first, last


@dataclass(eq=False)
class JudgedPolicy:
    """A policy whose answers are timed, and refused where they are no portfolio within the limit."""

    name: str
    policy: Policy
    gross_limit: float
    clock: Callable[[], float]
    latencies: list[float] = field(default_factory=list)

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """What the policy decides.

        Raises:
            ValueError: if weights are not finite, do not sum to 1 or are above the gross limit.
        """
        began = self.clock()
        decision = self.policy.decide(panel, t, account)
        self.latencies.append(self.clock() - began)
        if decision.target is not None:
            self._require_portfolio(decision.target, panel.sessions[t].item())
        return decision

    def _require_portfolio(self, target: NDArray[np.float64], day: date) -> None:
        total, gross = float(target.sum()), float(np.abs(target[:-1]).sum())
        if not (abs(total - 1.0) <= ROUNDING and gross <= self.gross_limit + ROUNDING):  # false for a NaN, too
            raise ValueError(
                f"weights must be finite, sum to 1 with cash, and names to at most {self.gross_limit:g} in absolute "
                f"terms, but on {day} {self.name} wants a sum of {total:.6g} and a gross of {gross:.6g}"
            )
