"""Gymnasium environment `nvtrader/PortfolioCVaR-v0`: one portfolio of the simulation."""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.accounts import RUIN
from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.envs.simulation import PortfolioSimulation, Step
from nvtrader_pipelines.envs.spaces import action_rows, action_space, observation_space
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline


def step_info(simulation: PortfolioSimulation, step: Step, row: int) -> dict[str, Any]:
    """Build the `info` of one portfolio's step."""
    accounts, transition = simulation.accounts, step.account.transition
    exposures, is_ruined = transition.exposures, accounts.equity[row] <= RUIN
    triggered = next((kind for kind, is_triggered in step.triggered.items() if is_triggered[row]), None)
    return {
        "session": str(simulation.panel.sessions[accounts.t[row]]),
        "equity": float(accounts.equity[row]),
        "drawdown": float(accounts.drawdown[row]),
        "turnover": float(transition.turnover[row]),
        "cost": float(transition.cost[row]),
        "session_growth": transition.session_growth[row].copy(),
        "target_weights": step.target[row].copy(),
        "executed_weights": transition.executed[row].copy(),
        "weights": transition.weights[row].copy(),
        "reward_terms": {term: float(values[row]) for term, values in step.account.reward_terms.items()},
        "gross_before_cap": exposures.before_cap[row].copy(),
        "gross": exposures.gross[row].copy(),
        "financing": exposures.financing[row].copy(),
        "cap_turnover": exposures.cap_turnover[row].copy(),
        "cap_cost": exposures.cap_cost[row].copy(),
        "truncated": step.cut is not None and bool(step.cut[row]),
        "termination": "ruin" if triggered is None and is_ruined else triggered,
    }


class PortfolioEnv(gymnasium.Env[NDArray[Any], Any]):
    """Portfolio choice over N names and cash with costs, drift and realized-risk penalties.

    ## Description
    At the close of every `rebal_freq`-th session the agent chooses target weights from what is known then. The order
    fills at the next open (or the next close if the market has only closes), pays `turnover_cost_bps` on the sum of
    absolute changes from the drifted weights and the spec's other `costs`, and is held to the next decision.

    ## Action space
    `Box(-5, 5, (N+1,))`: logits of the names and cash; softmax gives the target weights, which reaches the
    whole simplex. The weight of ineligible names becomes cash. A `residual` action tilts an anchor instead.
    `levered_simplex` (N+1 logits, the last of the leverage) borrows, `long_short` (2N logits) also sells short; both
    pay `financing` on what exceeds a gross of 1.

    ## Observation space
    `Box(-inf, inf, (lookback*N + N*F + N + 2,))`, float32: `lookback` sessions of log returns, F gold features of each
    name, held weights with cash last, drawdown. Returns and features are scaled by statistics of the window only.

    ## Rewards
    Sum of the spec's terms, by default log growth net of costs, less the excess of realized CVaR over a limit, less
    `vol_penalty` times realized volatility. `info["reward_terms"]` holds every contribution.
    `hindsight` and `dp_distillation` look ahead within the window.

    With `stop_properly`, the total reward R of an episode that a truncating termination ends is replaced: `sign_safe`
    (default) makes it R - (1 - coefficient) * |R|, which is never more than R; `literal` makes it coefficient * R,
    which is more than R if R is negative. The change is paid at the last step as the term `stop_properly` (0 at other
    steps), so the terms still sum to the reward and the other terms stay unshaped.

    ## Starting state
    All cash, equity 1, at a session drawn uniformly from those with room for a whole episode.

    ## Episode end
    Truncated after `episode_len` decisions or at the end of the window; terminated when equity is 1e-6 or less after a
    step. The spec's `terminations` end it earlier, after the step in which one is triggered:

    | kind | triggered when | checked at |
    |---|---|---|
    | `drawdown` | equity is below its highest close by `limit` (0.3) or more | every close |
    | `margin_call` | equity is at or below `maintenance` (0.5) of the opening equity | every close |
    | `maintenance_margin` | equity is at or below `margin` (0.25) of the positions' gross value | every close |
    | `risk_breach` | a name's weight, volatility or CVaR (0.05) is above its limit | the step's last close |

    Each truncates by default and terminates with `truncates=False`; if one of each is triggered, the episode is
    terminated. `info["termination"]` is the kind of the first triggered rule in the spec's order, else `ruin` for an
    account that lost all (its equity is 0 or near it, never below), else None, as at the length of the episode or the
    window's end. Of each session, `info` has the `gross` at the close, that `gross_before_cap`, the `financing` paid,
    and turnover and cost of the cap's trades. Terminations act in episodes only: a walk-forward back-test has
    none.

    ## Arguments
    `panel` (default: the packaged sample market), `spec` (an `EnvSpec`), `first` and `last` (indices of the window),
    `scaler` (of the observation), `pipeline` (a `WeightPipeline`), and any knob of the spec by name:

    ```python
    import nvtrader_pipelines.envs

    gymnasium.make("nvtrader/PortfolioCVaR-v0", rebal_freq=1)
    ```

    With a `pipeline`, actions become targets through its stages; `info["truncated"]` says whether a limit with
    `mark_truncated` cut them, which truncates the episode if `stop_properly` is set.

    ## Version history
    * v0: first version.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - declared by Gymnasium

    def __init__(
        self,
        panel: MarketPanel | None = None,
        spec: EnvSpec | None = None,
        *,
        first: int = 0,
        last: int | None = None,
        scaler: ObservationScaler | None = None,
        pipeline: WeightPipeline | None = None,
        **knobs: Any,
    ) -> None:
        spec = EnvSpec.model_validate({**(spec or EnvSpec()).model_dump(), **knobs})
        if pipeline is not None:
            spec = spec.model_copy(update={"pipeline": True})
        panel = sample_panel() if panel is None else panel
        self.simulation = PortfolioSimulation(panel, spec, 1, first=first, last=last, scaler=scaler, pipeline=pipeline)
        self.observation_space = observation_space(self.simulation)
        self.action_space = action_space(self.simulation)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode in cash."""
        super().reset(seed=seed, options=options)
        self.simulation.reset([0], [self.np_random])
        session = str(self.simulation.panel.sessions[self.simulation.accounts.t[0]])
        return self.simulation.observe()[0], {"session": session, "equity": 1.0}

    def action_masks(self) -> NDArray[np.bool_]:
        """Whether each choice of a discrete action may be held, (A,); sb3-contrib's MaskablePPO asks for it."""
        return self.simulation.action_masks()[0]

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Trade to the action's weights and hold to the next decision.

        Raises:
            ValueError: if the action has the wrong length or contains a NaN.
        """
        action = np.asarray(action)
        if action.shape != self.action_space.shape:
            raise ValueError(f"an action needs shape {self.action_space.shape}, but has {action.shape}")
        step = self.simulation.step(action_rows(self.action_space, action[None]))
        return (
            step.observation[0],
            float(step.reward[0]),
            bool(step.terminated[0]),
            bool(step.truncated[0]),
            step_info(self.simulation, step, 0),
        )
