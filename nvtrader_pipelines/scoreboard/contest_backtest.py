"""Contest backtests: equal sessions, fills, costs, leverage and start in cash for every entrant."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.fill_timing import resolve_fill
from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.account_tables import ACTION_LOG, EQUITY
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest, walk
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.evaluation.splits.fold import MIN_TEST_SESSIONS
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.evaluation.step_generators import Steps
from nvtrader_pipelines.evaluation.weights_backtest import STANDARD_EXECUTION, Execution
from nvtrader_pipelines.market.panel import MarketPanel, Window, panel_digest
from nvtrader_pipelines.policies.policy import Decision, Policy
from nvtrader_pipelines.scoreboard.contests import COMMON, ContestSpec
from nvtrader_pipelines.scoreboard.entrants import Entrant, UntimedTwin
from nvtrader_pipelines.scoreboard.scorecard import Contest

MIN_WINDOW_SESSIONS = 252  # sessions an entrant must leave in the common window; our choice
WEIGHT_TOLERANCE = 1e-9  # allowed deviation of the sum and the gross of weights


@dataclass(frozen=True)
class Meter:
    """Clock and memory probe of a backtest."""

    clock: Callable[[], float]  # seconds, monotonic
    memory: Callable[[], int]  # resident bytes of the process


class Admission(NamedTuple):
    """Contest with its admitted entrants, and the reasons of those refused."""

    contest: Contest
    admitted: tuple[Entrant, ...]
    refused: Mapping[str, str]  # entrant to reason


@dataclass(frozen=True, eq=False)
class ContestRun:
    """Backtest of one entrant over the contest window."""

    entrant: Entrant
    panel: MarketPanel
    curves: pl.DataFrame  # columns of EQUITY, one account
    actions: pl.DataFrame  # columns of ACTION_LOG
    seconds: float
    latencies: NDArray[np.float64]  # (D,) seconds from a close to the weights
    peak_memory: int  # bytes
    openings: tuple[float, ...]  # see `evaluation.timing_luck`; the last is the account's own
    n_acted: int = 0  # decisions whose weights the timing stage changed
    untimed_curves: pl.DataFrame | None = None  # EQUITY of its twin without the timing stage


def admit_entrants(
    whole: MarketPanel,
    entrants: Sequence[Entrant],
    panels: Mapping[str, MarketPanel],
    named_contest: tuple[str, ContestSpec] = ("", ContestSpec()),
    execution: Execution = STANDARD_EXECUTION,
) -> Admission:
    """Choose the window of a contest on one source and admit its entrants.

    An admitted entrant may be scored on all sessions of the window. An open end extends as far as all admitted entrants
    may be scored. The window must keep at least a year; where no trained entrant has a year, as many sessions as the
    longest run has, or without runs the longest trained entrant. An entrant that would leave less is refused,
    independent of the order of the entrants.

    Args:
        whole: panel of the source with all names.
        entrants: the entrants on this source, with distinct names.
        panels: entrant name to the panel it decides on.
        named_contest: name and window of the contest.
        execution: fills, costs and leverage of every account; interest is the standard one.

    Raises:
        ValueError: if the market has fewer than two sessions, or does not cover the contest.
    """
    name, spec = named_contest
    window = _initial_window(spec, whole)
    admitted, refused = [], {}
    windows: dict[str, Window] = {}
    for entrant in entrants:
        try:
            windows[entrant.name] = _own_window(entrant, whole, panels[entrant.name])
        except ValueError as error:
            refused[entrant.name] = str(error)
    min_sessions = _min_sessions(
        [(entrant, _length(windows[entrant.name])) for entrant in entrants if entrant.name in windows]
    )
    for entrant in (entrant for entrant in entrants if entrant.name in windows):
        own = windows[entrant.name]
        try:
            if not _covers(own, window, spec):
                raise ValueError(_outside_message(entrant, whole, own, name))
            joint = max(window[0], own[0]), min(window[1], own[1])
            if joint != window:
                _require_window(entrant, whole, window, joint, min_sessions)
            entrant.require_unseen((whole.sessions[joint[0]].item(), whole.sessions[joint[1]].item()))
        except ValueError as error:
            refused[entrant.name] = str(error)
        else:
            admitted.append(entrant)
            window = joint
    contest = Contest(
        name=name,
        source=whole.source,
        calendar=whole.calendar.name,
        panel_digest=panel_digest(whole),
        first_session=whole.sessions[window[0]].item(),
        last_session=whole.sessions[window[1]].item(),
        n_sessions=_length(window),
        fill=resolve_fill(execution.fill, whole),
        costs=execution.costs,
        gross_limit=execution.gross_limit,
    )
    return Admission(contest, tuple(admitted), refused)


def default_contest(
    whole: MarketPanel,
    entrants: Sequence[Entrant],
    panels: Mapping[str, MarketPanel],
    contests: Mapping[str, ContestSpec],
) -> tuple[str, ContestSpec]:
    """Name and window of the first contest that can score a run, else of the last contest."""
    runs = [entrant for entrant in entrants if entrant.kind == "run"]
    for name, spec in contests.items():
        if any(run in admit_entrants(whole, [run], panels, (name, spec)).admitted for run in runs):
            return name, spec
    return list(contests.items())[-1]


def _initial_window(spec: ContestSpec, whole: MarketPanel) -> Window:
    """Window that a contest sets, as positions; an open end is that of the market."""
    days = whole.sessions
    for day in (spec.first, spec.last):
        if day is not None and not days[0] <= np.datetime64(day) <= days[-1]:
            raise ValueError(
                f"a contest must lie within the market, {days[0]} to {days[-1]}, but it has the day {day}; set another "
                "in data/contests.yaml, or deliver those bars"
            )
    # the first session is decided at the close before
    first = 1 if spec.first is None else max(1, whole.index_of(np.datetime64(spec.first)))
    last = len(days) - 1
    return first, last if spec.last is None else int(np.searchsorted(days, np.datetime64(spec.last), "right")) - 1


def _own_window(entrant: Entrant, whole: MarketPanel, panel: MarketPanel) -> Window:
    """Longest window of the whole market, as positions, that may score an entrant on its own."""
    days = whole.sessions
    first = max(1, whole.index_of(np.datetime64(entrant.first_unseen_session(panel))))
    last = len(days) - 1
    if entrant.latest is not None:
        last = int(np.searchsorted(days, np.datetime64(entrant.latest), "right")) - 1
    entrant.require_unseen((days[first].item(), days[last].item()))
    return first, last


def _covers(own: Window, window: Window, spec: ContestSpec) -> bool:
    """Whether an entrant may be scored up to the ends of the window that the contest sets."""
    return (spec.first is None or own[0] <= window[0]) and (spec.last is None or own[1] >= window[1])


def _outside_message(entrant: Entrant, whole: MarketPanel, own: Window, contest: str) -> str:
    first, last = (whole.sessions[position] for position in own)
    tests = f", since its tests end on {entrant.latest}" if entrant.latest else ""
    return (
        f"an entrant of the contest {contest!r} must be scored on all its sessions, but {entrant.name} may be scored "
        f"from {first} to {last} only{tests}; `nvtrader scoreboard --contest {COMMON}` shows the sessions that all "
        "entrants share, and data/contests.yaml names other windows"
    )


def _length(window: Window) -> int:
    return window[1] - window[0] + 1


def _min_sessions(alone: Sequence[tuple[Entrant, int]]) -> int:
    """Minimum length of the window, from the sessions that each entrant alone could be scored on."""
    restricted = [(entrant.kind, n_sessions) for entrant, n_sessions in alone if entrant.is_restricted]
    longest = max((n_sessions for _, n_sessions in restricted), default=0)
    runs = [n_sessions for kind, n_sessions in restricted if kind == "run"]  # so that a file never displaces a run
    n_sessions = MIN_WINDOW_SESSIONS if longest >= MIN_WINDOW_SESSIONS else max(runs, default=longest)
    return max(MIN_TEST_SESSIONS, n_sessions)


def _require_window(entrant: Entrant, whole: MarketPanel, window: Window, joint: Window, min_sessions: int) -> None:
    """Raise if an entrant would leave fewer sessions of the window than the minimum."""
    after = max(0, _length(joint))
    if after < min_sessions:
        sessions, trained = whole.sessions, entrant.trained
        card = f" (trained from {trained[0].first} to {trained[-1].last})" if trained else ""
        until = f" to {entrant.latest}" if entrant.latest else ""
        raise ValueError(
            f"at least {min_sessions} sessions of the window {sessions[window[0]]} to {sessions[window[1]]} must "
            f"remain, but {entrant.name}{card} may be scored from {sessions[joint[0]]}{until} only, which leaves "
            f"{after} sessions; train it on earlier sessions, or score it in a home of its own"
        )


def contest_environment(contest: Contest, rebal_freq: int) -> EnvSpec:
    """Environment with the contest's fills and costs at one entrant's cadence; its reward is unused."""
    return EnvSpec(
        rebal_freq=rebal_freq,
        turnover_cost_bps=0.0,
        vol_penalty=0.0,
        costs=contest.costs,
        fill=contest.fill,
        rewards=(LogGrowth(),),
    )


def run_contest_backtest(entrant: Entrant, panel: MarketPanel, contest: Contest, meter: Meter) -> ContestRun:
    """Backtest an entrant on an account of its own, and its untimed twin on another.

    Raises:
        ValueError: if it was trained on a session of the window, cannot be opened on this panel, or decides weights
            that are not a portfolio within the gross limit.
    """
    entrant.require_unseen(contest.window)
    first, last = _indices(entrant, panel, contest)
    began = meter.clock()
    policy = ScoringPolicy(entrant.name, entrant.open(panel, contest.window), contest.gross_limit, meter.clock)
    kind = "baseline" if entrant.kind == "baseline" else "ensemble"
    accounts = [PolicyAccount(entrant.name, kind, (None,), (policy,))]
    window = [Fold(0, 0, first - 1, first, last)]
    environment = contest_environment(contest, entrant.rebal_freq)
    steps = Steps(walk(panel, environment, window, accounts))
    peak, n_acted = meter.memory(), 0
    for step in steps:
        peak = max(peak, meter.memory())
        n_acted += _timing_acted(entrant.untimed_twin, step.decisions[0])
    seconds, record = meter.clock() - began, steps.result
    others = [
        backtest(panel, environment, window, [other], first_hold).equity_curves
        for first_hold in range(1, entrant.rebal_freq)
        for other in [PolicyAccount(entrant.name, kind, (None,), (entrant.open(panel, contest.window),))]
    ]
    curves = record.equity_curves.select(list(EQUITY))
    openings = [
        sharpe_ratio(account["net_return"].to_numpy(), contest.periods_per_year) for account in (*others, curves)
    ]
    untimed_curves = None
    if entrant.untimed_twin is not None:
        twin = PolicyAccount(entrant.name, kind, (None,), (entrant.untimed_twin.open(panel, contest.window),))
        untimed_curves = backtest(panel, environment, window, [twin]).equity_curves.select(list(EQUITY))
    return ContestRun(
        entrant=entrant,
        panel=panel,
        curves=curves,
        actions=record.action_logs.select(list(ACTION_LOG)),
        seconds=seconds,
        latencies=np.array(policy.latencies),
        peak_memory=peak,
        openings=tuple(openings),
        n_acted=n_acted,
        untimed_curves=untimed_curves,
    )


def _timing_acted(twin: UntimedTwin | None, decision: Decision) -> bool:
    """Whether the timing stage changed the weights of a decision."""
    if twin is None or decision.pipeline is None:
        return False
    return any(stage.name == twin.timing and stage.reason for stage in decision.pipeline.stages)


def _indices(entrant: Entrant, panel: MarketPanel, contest: Contest) -> tuple[int, int]:
    """Positions of the first and last session of the window on the entrant's panel."""
    sessions, (begin, end) = panel.sessions, contest.window
    first, last = panel.index_of(np.datetime64(begin)), panel.index_of(np.datetime64(end))
    if last >= len(sessions) or first < 1 or last - first + 1 != contest.n_sessions:
        raise ValueError(
            f"{entrant.name} needs bars on each of the {contest.n_sessions} sessions from {begin} to {end} and on the "
            f"session before, but its names have bars from {sessions[0]} to {sessions[-1]}; choose other names, or "
            "deliver the missing bars"
        )
    if resolve_fill(contest.fill, panel) != contest.fill:
        raise ValueError(
            f"orders of {entrant.name} must fill at the {contest.fill} like those of all entrants, but its names have "
            "no opens; deliver them, or choose other names"
        )
    return first, last


@dataclass(eq=False)
class ScoringPolicy:
    """Policy wrapper that times decisions and requires portfolios within the gross limit."""

    name: str
    policy: Policy
    gross_limit: float
    clock: Callable[[], float]
    latencies: list[float] = field(default_factory=list)

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """Return the decision of the policy.

        Raises:
            ValueError: if weights are not finite, do not sum to 1 or exceed the gross limit.
        """
        began = self.clock()
        decision = self.policy.decide(panel, t, account)
        self.latencies.append(self.clock() - began)
        if decision.target is not None:
            self._require_portfolio(decision.target, panel.sessions[t].item())
        return decision

    def _require_portfolio(self, target: NDArray[np.float64], day: date) -> None:
        total, gross = float(target.sum()), float(np.abs(target[:-1]).sum())
        # negated, so that NaN raises too
        if not (abs(total - 1.0) <= WEIGHT_TOLERANCE and gross <= self.gross_limit + WEIGHT_TOLERANCE):
            raise ValueError(
                f"weights must be finite, sum to 1 with cash and have a gross of at most {self.gross_limit:g}, but on "
                f"{day} those of {self.name} have a sum of {total:.6g} and a gross of {gross:.6g}"
            )
