"""Random sample of a training's episodes, step by step, which leaves the training unchanged."""

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from nvtrader_pipelines.envs.observations.builder import observation_hashes
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.policies.rollout_tables import STEP
from nvtrader_pipelines.policies.trajectory import NO_TEXT, Columns, PlayedStep, step_info

SAMPLING = 0x5A  # separates the sampler's random stream from those of the episodes' starts
CHUNK = 4096  # rows per compressed chunk, at least
TERM, TERMINATION = "term:", "termination:"  # column prefixes of reward terms and terminations
CUT = "cut"  # column: whether a limit of the pipeline cut the target
ZSTD = "zstd"
State = tuple[dict[str, NDArray[Any]], dict[str, Any]]  # arrays, and values that JSON can hold


class EpisodeSampler:
    """Sampler of whole episodes: each is recorded with probability `rate`, drawn at its start.

    It has its own generator, so the rate does not affect the training. Unfinished episodes are not reported.
    """

    def __init__(self, simulation: PortfolioSimulation, rate: float, seed: int) -> None:
        self._rate = rate
        self._generator = np.random.default_rng([seed, SAMPLING])
        self._sessions = simulation.panel.sessions
        self._wait = 0 if simulation.accounts.fill == "same_close" else 1  # sessions from a decision to its fill
        n_portfolios = len(simulation.steps)
        self._episodes = np.arange(n_portfolios, dtype=np.int64)  # number of each portfolio's current episode
        self._steps = np.zeros(n_portfolios, dtype=np.int64)  # steps of each portfolio in its episode
        self._n_episodes = n_portfolios
        self._sampled = self._generator.random(n_portfolios) < rate
        self._finished: list[int] = []  # numbers of the finished sampled episodes, in order of their end
        self._chunks: list[NDArray[np.uint8]] = []  # compressed rows of sampled episodes, finished or not
        self._rows = Columns()  # rows since the last chunk

    def record(self, played: PlayedStep, values: Tensor | None = None, log_probs: Tensor | None = None) -> None:
        """Record one step of all portfolios, with values and log-probabilities if there are any."""
        sampled = np.flatnonzero(self._sampled & played.running)
        if len(sampled):
            outputs = {"value": values, "log_prob": log_probs}
            known = {name: np.asarray(item).reshape(-1)[sampled] for name, item in outputs.items() if item is not None}
            self._rows.append({**self._step_columns(played, sampled), **known})
            if len(self._rows) >= CHUNK:
                self._chunks.append(_to_array(self._rows.frame()))
                self._rows = Columns()
        self._steps += played.running
        done = np.flatnonzero(played.done)
        if len(done):
            self._start_episodes(done)

    def rollouts(self) -> pl.DataFrame:
        """Return every step of the finished sampled episodes with schema `STEP`, in order of their end."""
        if not self._finished:
            return pl.DataFrame(schema=STEP)
        parts = [*map(_to_frame, self._chunks), self._rows.frame()]
        rows = pl.concat([part for part in parts if len(part)])
        ranks = np.full(self._n_episodes, -1)  # of each episode among the finished ones
        ranks[self._finished] = np.arange(len(self._finished))
        rank = ranks[rows["episode"].to_numpy()]
        order = np.argsort(rank, kind="stable")  # the steps of an episode keep their order
        return self._to_steps(rows[order[np.count_nonzero(rank < 0) :]])

    def state(self) -> State:
        """Return the state to `restore`."""
        arrays = {
            "numbers": self._episodes.copy(),
            "steps": self._steps.copy(),
            "taken": self._sampled.copy(),
            "ended": np.array(self._finished, dtype=np.int64),
            **{f"chunk{i}": chunk for i, chunk in enumerate(self._chunks)},
        }
        if len(self._rows):
            arrays["rows"] = _to_array(self._rows.frame())
        generator = self._generator.bit_generator.state
        return arrays, {"begun": self._n_episodes, "chunks": len(self._chunks), "generator": generator}

    def restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Restore the arrays and plain values that `state()` returned."""
        self._episodes, self._steps, self._sampled = (arrays[name].copy() for name in ("numbers", "steps", "taken"))
        self._n_episodes, self._finished = facts["begun"], arrays["ended"].tolist()
        self._generator.bit_generator.state = facts["generator"]
        self._chunks = [arrays[f"chunk{i}"] for i in range(facts["chunks"])]
        self._rows = Columns()
        if "rows" in arrays:
            rows = _to_frame(arrays["rows"])
            self._rows.append({column.name: column.to_numpy() for column in rows})

    def _start_episodes(self, done: NDArray[np.intp]) -> None:
        """Finish the episodes of portfolios that are done, and draw which of the next ones to sample."""
        self._finished += self._episodes[done[self._sampled[done]]].tolist()
        self._episodes[done] = self._n_episodes + np.arange(len(done))
        self._steps[done] = 0
        self._n_episodes += len(done)
        self._sampled[done] = self._generator.random(len(done)) < self._rate

    def _step_columns(self, played: PlayedStep, sampled: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        """Copy the columns of a step of the sampled portfolios; the step's arrays may be reused."""
        step, account = played.step, played.step.account
        return {
            "episode": self._episodes[sampled],
            "step": self._steps[sampled],
            "t": played.t[sampled],
            "observation_hash": observation_hashes(played.observation[sampled]),
            "action": played.action[sampled].astype(np.float32, copy=False),
            "reward": step.reward[sampled],
            "equity": account.path[sampled, -1],
            "drawdown": played.drawdown[sampled],
            "turnover": account.transition.turnover[sampled],
            "terminated": step.terminated[sampled],
            "truncated": step.truncated[sampled],
            **({} if step.cut is None else {CUT: step.cut[sampled]}),
            **{f"{TERM}{kind}": contributions[sampled] for kind, contributions in account.reward_terms.items()},
            **{f"{TERMINATION}{kind}": where[sampled] for kind, where in step.triggered.items()},
        }

    def _to_steps(self, rows: pl.DataFrame) -> pl.DataFrame:
        t = rows["t"].to_numpy()
        terms, terminations = (
            {name.removeprefix(prefix): pl.col(name) for name in rows.columns if name.startswith(prefix)}
            for prefix in (TERM, TERMINATION)
        )
        termination = [pl.when(where).then(pl.lit(kind)) for kind, where in terminations.items()]
        derived = {
            **{name: pl.lit(None) for name in ("value", "log_prob") if name not in rows.columns},
            "session": pl.lit(pl.Series(self._sessions[t])),
            "fill_session": pl.lit(pl.Series(self._sessions[t + self._wait])),
            "info": step_info(
                terms, pl.coalesce(*termination, NO_TEXT), truncated=pl.col(CUT) if CUT in rows.columns else None
            ),
        }
        return rows.select(derived.get(name, pl.col(name)).cast(dtype).alias(name) for name, dtype in STEP.items())


def _to_array(frame: pl.DataFrame) -> NDArray[np.uint8]:
    """Compress a frame as one Arrow stream; a compression context per column would cost more than the content."""
    table, buffer = frame.to_arrow(), pa.BufferOutputStream()
    with pa.CompressedOutputStream(buffer, ZSTD) as stream, pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(buffer.getvalue(), dtype=np.uint8)


def _to_frame(content: NDArray[np.uint8]) -> pl.DataFrame:
    stream = pa.CompressedInputStream(pa.BufferReader(content.tobytes()), ZSTD)
    return pl.DataFrame(pa.ipc.open_stream(stream).read_all())
