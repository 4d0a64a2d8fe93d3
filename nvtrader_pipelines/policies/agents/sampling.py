"""A sample of the episodes a training plays, step by step, drawn without touching the training."""

import io
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from nvtrader_pipelines.envs.observations.builder import observation_hash
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.policies.trajectory import STEP, Played, step_info

SAMPLING = 0x5A  # keeps the sample's random stream apart from the streams that draw the episodes' starts
State = tuple[dict[str, NDArray[Any]], dict[str, Any]]  # arrays, and facts that JSON can hold
Row = tuple[Any, ...]


class EpisodeSampler:
    """Keeps whole episodes: each is taken with probability `rate`, decided as it begins.

    Its generator is its own, so a training plays the same whatever the rate. Episodes that training leaves unfinished
    are left out.
    """

    def __init__(self, simulation: PortfolioSimulation, rate: float, seed: int) -> None:
        self._rate = rate
        self._generator = np.random.default_rng([seed, SAMPLING])
        self._sessions = simulation.panel.sessions.tolist()
        self._wait = 0 if simulation.accounts.fill == "same_close" else 1  # sessions from a decision to its fill
        n_portfolios = len(simulation.steps)
        self._numbers = np.arange(n_portfolios, dtype=np.int64)  # of the episode each portfolio is in
        self._begun = n_portfolios
        self._taken = self._generator.random(n_portfolios) < rate
        self._open: dict[int, list[Row]] = {}  # rows of the episodes taken that have not ended, by portfolio
        self._finished: list[pl.DataFrame] = []

    def record(self, played: Played, values: Tensor | None = None, log_probs: Tensor | None = None) -> None:
        """Note one step of all portfolios, with the critic's values and the actions' log-probabilities if known."""
        for i in np.flatnonzero(self._taken & played.running).tolist():
            rows = self._open.setdefault(i, [])
            judged = (_number(values, i), _number(log_probs, i))
            rows.append((int(self._numbers[i]), len(rows), *self._row(played, i, judged)))
        ended = np.flatnonzero(played.done)
        if len(ended):
            self._begin(ended)

    def rollouts(self) -> pl.DataFrame:
        """Every step of the episodes that were taken and have ended, by `STEP`, in the order they ended."""
        return pl.concat([pl.DataFrame(schema=STEP), *self._finished], rechunk=True)

    def state(self) -> State:
        """What `restore` needs to go on from here."""
        unfinished = [row for _, rows in sorted(self._open.items()) for row in rows]
        arrays = {
            "numbers": self._numbers.copy(),
            "taken": self._taken.copy(),
            "finished": _to_array(self.rollouts()),
            "unfinished": _to_array(pl.DataFrame(unfinished, schema=STEP, orient="row")),
        }
        return arrays, {"begun": self._begun, "generator": self._generator.bit_generator.state}

    def restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Go on from a `state`."""
        self._numbers, self._taken = arrays["numbers"].copy(), arrays["taken"].copy()
        self._finished = [_to_frame(arrays["finished"])]
        self._begun = facts["begun"]
        self._generator.bit_generator.state = facts["generator"]
        portfolios = {number: i for i, number in enumerate(self._numbers.tolist())}
        self._open = {}
        for row in _to_frame(arrays["unfinished"]).rows():
            self._open.setdefault(portfolios[row[0]], []).append(row)

    def _begin(self, ended: NDArray[np.intp]) -> None:
        """Close the ended episodes and decide which of those that follow to take."""
        for i in ended.tolist():
            if rows := self._open.pop(i, []):
                self._finished.append(pl.DataFrame(rows, schema=STEP, orient="row"))
        self._numbers[ended] = self._begun + np.arange(len(ended))
        self._begun += len(ended)
        self._taken[ended] = self._generator.random(len(ended)) < self._rate

    def _row(self, played: Played, i: int, judged: tuple[float | None, float | None]) -> Row:
        """The columns of `STEP` from `session` on."""
        step, t = played.step, int(played.t[i])
        terms = {kind: float(values[i]) for kind, values in step.account.reward_terms.items()}
        struck = next((kind for kind, where in step.struck.items() if where[i]), None)
        return (
            self._sessions[t],
            self._sessions[t + self._wait],
            observation_hash(played.observation[i]),
            played.action[i].tolist(),
            float(step.reward[i]),
            *judged,
            float(step.account.path[i, -1]),
            float(played.drawdown[i]),
            float(step.account.transition.turnover[i]),
            bool(step.terminated[i]),
            bool(step.truncated[i]),
            step_info(terms, struck),
        )


def _number(values: Tensor | None, i: int) -> float | None:
    return None if values is None else float(values.reshape(-1)[i])


def _to_array(frame: pl.DataFrame) -> NDArray[np.uint8]:
    """A frame as bytes of an Arrow file."""
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="zstd")
    return np.frombuffer(buffer.getvalue(), dtype=np.uint8)


def _to_frame(content: NDArray[np.uint8]) -> pl.DataFrame:
    return pl.read_ipc(io.BytesIO(content.tobytes()))
