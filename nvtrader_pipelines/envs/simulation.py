"""Episodes of n portfolios at once: the engine of the scalar and the vectorized environment."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nvtrader_pipelines.envs.account import holds, situation_of
from nvtrader_pipelines.envs.accounts import RUIN, Accounts, AccountStep
from nvtrader_pipelines.envs.choice import ChoiceMap
from nvtrader_pipelines.envs.observations import Observation, ObservationScaler
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.envs.terminations import EpisodeView
from nvtrader_pipelines.market.panel import MarketPanel, Window, concat_windows, normalize_windows, window_mask
from nvtrader_pipelines.portfolio.pipeline.pipeline import Run, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.stage import Thresholds


class Step(NamedTuple):
    """Result of one step of n portfolios, before any reset."""

    observation: NDArray[np.float32]  # (n, length)
    reward: NDArray[np.float64]  # (n,)
    terminated: NDArray[np.bool_]  # (n,) ruined, or a termination that terminates
    truncated: NDArray[np.bool_]  # (n,) end of the episode's length or of the data, or a termination that truncates
    target: NDArray[np.float64]  # (n, N+1)
    account: AccountStep
    triggered: dict[str, NDArray[np.bool_]]  # by termination, whether it was triggered, (n,)
    cut: NDArray[np.bool_] | None = None  # (n,) whether a limit of the pipeline cut the target; None without one


class PortfolioSimulation:
    """n portfolios on one panel, each at its own session of its own episode.

    Decisions begin at `first`, and prices up to `last` may be used. An episode is within one of the stretches, parts of
    `first..last` in time order, on which the scaler is fitted by default.

    Raises:
        ValueError: if no stretch holds one step, or the spec asks for a pipeline that is not given.
    """

    def __init__(  # noqa: PLR0913 - a window is given by its ends or as stretches
        self,
        panel: MarketPanel,
        spec: EnvSpec,
        n_portfolios: int,
        *,
        first: int = 0,
        last: int | None = None,
        stretches: Sequence[Window] = (),
        scaler: ObservationScaler | None = None,
        pipeline: WeightPipeline | None = None,
    ) -> None:
        self.first, self.last = first, len(panel.sessions) - 1 if last is None else last
        self.stretches = normalize_windows(stretches or (self.first, self.last))
        self._starts = _episode_starts(self.stretches, spec)
        if self.first < 0 or not len(self._starts) or self.last >= len(panel.sessions):
            window = ", ".join(f"{start}..{end}" for start, end in self.stretches)
            raise ValueError(
                f"an episode needs {spec.rebal_freq} sessions after its first decision, but the window {window} of "
                f"{len(panel.sessions)} sessions has fewer"
            )
        self.panel, self.spec = panel, spec
        self.accounts = Accounts(
            panel, spec, n_portfolios, t=self.first, tracks_positions=spec.pipeline, training=self.stretches
        )
        # latest decision of an episode at t, (T,)
        self._latest = _stretch_ends(self.stretches, len(panel.sessions)) - spec.rebal_freq
        self._all_trade = np.ones(n_portfolios, dtype=bool)  # every portfolio trades at every decision
        self.steps = np.zeros(n_portfolios, dtype=np.int64)
        self.episode_rewards = np.zeros(n_portfolios)  # unshaped, for `stop_properly`
        scaler = fit_scaler(panel, spec.observation, self.stretches) if scaler is None else scaler
        self.builder = spec.observation.start(panel, scaler, spec.lookback)
        self._to_weights = spec.start_action(panel)
        self._pipeline = _start_pipeline(panel, self.stretches, pipeline) if spec.pipeline else None

    def reset(self, portfolios: Sequence[int], generators: Sequence[np.random.Generator]) -> None:
        """Begin episodes in cash, at starts drawn by each portfolio's generator."""
        rows, n_starts = list(portfolios), len(self._starts)
        self._begin(rows, [int(self._starts[generator.integers(n_starts)]) for generator in generators])

    def rewind(self) -> bool:
        """Reset portfolios without room for a step to the first start; whether there are any.

        For portfolios whose episode has ended while others continue, so that no step leaves its stretch.
        """
        rows = np.flatnonzero(self.accounts.t > self._latest[self.accounts.t]).tolist()
        if rows:
            self._begin(rows, [int(self._starts[0])] * len(rows))
        return bool(rows)

    def observe(self) -> NDArray[np.float32]:
        """Build the observations of all portfolios, (n, length)."""
        return self.builder.observe(self.accounts.t, AccountView(self.accounts.weights, self.accounts.drawdown))

    def step(self, actions: NDArray[np.floating]) -> Step:
        """Trade every portfolio to its action's weights and hold to the next decision."""
        accounts = self.accounts
        target = self._to_weights(actions, accounts.t, accounts.weights, accounts.equity)
        is_trading, cut, penalties = self._all_trade, None, None
        if self._pipeline is not None:
            target, is_trading, cut, penalties = _run_pipeline(
                self._pipeline, target, accounts, self.panel, self.spec.rebal_freq
            )
        account = accounts.trade(target, is_trading, self.spec.rebal_freq, penalties)
        steps, ends = np.empty_like(self.steps), np.empty((2, len(target)), dtype=np.bool_)
        _count_steps(self.steps, accounts.t, accounts.equity, RUIN, self.spec.episode_len, self._latest, steps, ends)
        self.steps, (terminated, over) = steps, ends
        triggered: dict[str, NDArray[np.bool_]] = {}
        stopped = np.zeros(len(target), np.bool_) if cut is None or self.spec.stop_properly is None else cut.copy()
        if self.spec.terminations:
            view = EpisodeView(
                path=account.path,
                drawdown=account.drawdown,
                weights=account.transition.weights,
                recent_returns=accounts.recent_returns,
                gross=account.transition.exposures.before_cap,
            )
            triggered = {rule.kind: rule.triggers(view) for rule in self.spec.terminations}
            for rule in self.spec.terminations:
                flags = stopped if rule.truncates else terminated
                flags |= triggered[rule.kind]
        if self.spec.stop_properly is not None or self.spec.terminations:
            over |= stopped
            account = self._shape_rewards(account, stopped & ~terminated)
        return Step(
            observation=self.observe(),
            reward=account.reward,
            terminated=terminated,
            truncated=over & ~terminated,
            target=target,
            account=account,
            triggered=triggered,
            cut=cut,
        )

    @property
    def sessions(self) -> NDArray[np.int64]:
        """Sessions of the stretches, ascending."""
        return np.flatnonzero(window_mask(self.stretches, len(self.panel.sessions)))

    def next_returns(self) -> NDArray[np.float64]:
        """Returns (S, N) from the close of each of the sessions to the next of its stretch; NaN without a price."""
        sessions, returns = self.sessions, np.where(self.panel.tradable, self.panel.close_returns, np.nan)
        following = np.minimum(sessions + 1, len(returns) - 1)
        is_last = np.isin(sessions, [last for _, last in self.stretches])
        return np.where(is_last[:, None], np.nan, returns[following])

    def action_masks(self) -> NDArray[np.bool_]:
        """Whether each portfolio may hold each choice of a discrete action, (n, A)."""
        assert isinstance(self._to_weights.map, ChoiceMap)
        return self._to_weights.map.allowed[self.accounts.t]

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of all arrays that the next step depends on, with a row per portfolio."""
        accounts = {f"accounts.{name}": array for name, array in self.accounts.state().items()}
        return {**accounts, "steps": self.steps.copy(), "episode_rewards": self.episode_rewards.copy()}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from a `state`.

        Raises:
            ValueError: if the state is of another spec, market or number of portfolios.
        """
        expected, found = (_shapes(arrays) for arrays in (self.state(), state))
        if found != expected:
            different = sorted(name for name in expected | found if expected.get(name) != found.get(name))
            raise ValueError(f"a state must be of one spec, market and n_portfolios; {', '.join(different)} differ")
        self.accounts.restore({name.removeprefix("accounts."): array for name, array in state.items()})
        self.steps, self.episode_rewards = state["steps"].copy(), state["episode_rewards"].copy()

    def _begin(self, rows: list[int], starts: list[int]) -> None:
        self.accounts.open(rows, starts)
        self.steps[rows] = 0
        self.episode_rewards[rows] = 0.0

    def _shape_rewards(self, account: AccountStep, stopped: NDArray[np.bool_]) -> AccountStep:
        """Add the change of the episode's reward by early stopping as a term of the step."""
        shaping = self.spec.stop_properly
        if shaping is None:
            return account
        self.episode_rewards = self.episode_rewards + account.reward
        change = np.where(stopped, shaping.shape_rewards(self.episode_rewards) - self.episode_rewards, 0.0)
        return account._replace(reward_terms={**account.reward_terms, "stop_properly": change})


def _start_pipeline(
    panel: MarketPanel, stretches: Sequence[Window], pipeline: WeightPipeline | None
) -> tuple[Run, Thresholds]:
    """Start the pipeline, with thresholds fitted to the market of the stretches."""
    if pipeline is None:
        raise ValueError("an environment with a pipeline must be given one: train an experiment, or set it to false")
    return pipeline.start(panel), pipeline.timing.fit(panel, stretches, ())


def _run_pipeline(
    pipeline: tuple[Run, Thresholds],
    proposals: NDArray[np.float64],
    accounts: Accounts,
    panel: MarketPanel,
    rebal_freq: int,
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64]]:
    """Return targets (n, N+1) after every stage, which portfolios trade, whose weights a limit cut, and penalties.

    Penalties (n,) are a guard's per unit of one-way turnover, in place of the reward's; NaN without one.
    """
    run, thresholds = pipeline
    targets, penalties = proposals.copy(), np.full(len(proposals), np.nan)
    is_trading, cut = np.ones(len(proposals), np.bool_), np.zeros(len(proposals), np.bool_)
    for i, t in enumerate(accounts.t.tolist()):
        account, proposal = accounts.account(i), proposals[i]
        result = run(proposal, situation_of(account, panel, t, thresholds, rebal_freq))
        targets[i], cut[i] = result.weights, result.truncated
        is_trading[i] = not holds(result.weights, proposal, account)
        if result.guards is not None and result.guards.turnover_penalty is not None:
            penalties[i] = 2.0 * result.guards.turnover_penalty
    return targets, is_trading, cut, penalties


def fit_scaler(panel: MarketPanel, observation: Observation, windows: Sequence[Window]) -> ObservationScaler:
    """Fit an observation's statistics on the sessions of the windows alone.

    Raises:
        ValueError: if the observation cannot be fitted on the windows.
    """
    if len(windows) == 1:
        return observation.fit(panel, *windows[0])
    known = concat_windows(panel, windows)
    return observation.fit(known, 0, len(known.sessions) - 1)


def _episode_starts(stretches: Sequence[Window], spec: EnvSpec) -> NDArray[np.int64]:
    """Sessions with room for a whole episode, or the first half of a short stretch.

    Episodes of a short stretch end with it, so that every stretch is trained on. If the only stretch is short, all
    episodes start at its first session.
    """
    whole = spec.rebal_freq * spec.episode_len
    starts: list[NDArray[np.int64]] = []
    for first, last in stretches:
        length = last - first
        short = length if len(stretches) == 1 else length // 2
        room = whole if length >= whole else max(short, spec.rebal_freq)
        starts.append(np.arange(first, last - room + 1))
    return np.concatenate(starts)


def _stretch_ends(stretches: Sequence[Window], n_sessions: int) -> NDArray[np.int64]:
    """Last session of each session's stretch, or of the next stretch between two, (T,)."""
    ends = np.array([last for _, last in stretches])
    return ends[np.minimum(np.searchsorted(ends, np.arange(n_sessions)), len(ends) - 1)]


def _shapes(state: dict[str, NDArray[Any]]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (array.dtype.str, array.shape) for name, array in state.items()}


@njit(cache=True)
def _count_steps(  # noqa: PLR0913 - flat arrays keep a compiled call cheap
    before: NDArray[np.int64],
    t: NDArray[np.int64],
    equity: NDArray[np.float64],
    ruin: float,
    episode_len: int,
    latest: NDArray[np.int64],
    steps: NDArray[np.int64],
    ends: NDArray[np.bool_],
) -> None:
    """Write the episodes' numbers of steps, and which are ruined and which have ended, (2, n)."""
    for i in range(len(steps)):
        steps[i] = before[i] + 1
        ends[0, i] = equity[i] <= ruin
        ends[1, i] = steps[i] >= episode_len or t[i] > latest[t[i]]
