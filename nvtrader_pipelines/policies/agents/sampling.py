"""A sample of the episodes a training plays, step by step, drawn without touching the training."""

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from nvtrader_pipelines.envs.observations.hashing import observation_hashes
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.policies.rollout_tables import STEP
from nvtrader_pipelines.policies.trajectory import NO_TERMINATION, Columns, Played, step_info

SAMPLING = 0x5A  # keeps the sample's random stream apart from the streams that draw the episodes' starts
CHUNK = 4096  # rows from which on they are compressed, once
TERM, TRIGGERED = (
    "term:",
    "triggered:",
)  # before the name of a reward term or a termination, in the columns of the rows kept
ZSTD = "zstd"
State = tuple[dict[str, NDArray[Any]], dict[str, Any]]  # arrays, and facts that JSON can hold


class EpisodeSampler:
    """Keeps whole episodes: each is taken with probability `rate`, decided as it begins.

    Its generator is its own, so a training plays the same whatever the rate. Episodes that training leaves unfinished
    are left out.
    """

    def __init__(self, simulation: PortfolioSimulation, rate: float, seed: int) -> None:
        self._rate = rate
        self._generator = np.random.default_rng([seed, SAMPLING])
        self._sessions = simulation.panel.sessions
        self._wait = 0 if simulation.accounts.fill == "same_close" else 1  # sessions from a decision to its fill
        n_portfolios = len(simulation.steps)
        self._numbers = np.arange(n_portfolios, dtype=np.int64)  # of the episode each portfolio is in
        self._steps = np.zeros(n_portfolios, dtype=np.int64)  # that it has taken in it
        self._begun = n_portfolios
        self._taken = self._generator.random(n_portfolios) < rate
        self._ended: list[int] = []  # numbers of the episodes taken that have ended, in that order
        self._chunks: list[NDArray[np.uint8]] = []  # rows of the episodes taken, ended or not, as they were played
        self._rows = Columns()  # those since the last chunk

    def record(self, played: Played, values: Tensor | None = None, log_probs: Tensor | None = None) -> None:
        """Note one step of all portfolios, with the critic's values and the actions' log-probabilities if known."""
        taken = np.flatnonzero(self._taken & played.running)
        if len(taken):
            judged = {"value": values, "log_prob": log_probs}
            known = {name: np.asarray(of).reshape(-1)[taken] for name, of in judged.items() if of is not None}
            self._rows.append({**self._of(played, taken), **known})
            if len(self._rows) >= CHUNK:
                self._chunks.append(_to_array(self._rows.frame()))
                self._rows = Columns()
        self._steps += played.running
        ended = np.flatnonzero(played.done)
        if len(ended):
            self._begin(ended)

    def rollouts(self) -> pl.DataFrame:
        """Every step of the episodes that were taken and have ended, by `STEP`, in the order they ended."""
        if not self._ended:
            return pl.DataFrame(schema=STEP)
        parts = [*map(_to_frame, self._chunks), self._rows.frame()]
        rows = pl.concat([part for part in parts if len(part)])
        places = np.full(self._begun, -1)  # of the episodes among the ended ones
        places[self._ended] = np.arange(len(self._ended))
        place = places[rows["episode"].to_numpy()]
        order = np.argsort(place, kind="stable")  # an episode's steps stay in theirs
        return self._steps_of(rows[order[np.count_nonzero(place < 0) :]])

    def state(self) -> State:
        """What `restore` needs to go on from here."""
        arrays = {
            "numbers": self._numbers.copy(),
            "steps": self._steps.copy(),
            "taken": self._taken.copy(),
            "ended": np.array(self._ended, dtype=np.int64),
            **{f"chunk{i}": chunk for i, chunk in enumerate(self._chunks)},
        }
        if len(self._rows):
            arrays["rows"] = _to_array(self._rows.frame())
        facts = {"begun": self._begun, "chunks": len(self._chunks), "generator": self._generator.bit_generator.state}
        return arrays, facts

    def restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Go on from a `state`."""
        self._numbers, self._steps, self._taken = (arrays[name].copy() for name in ("numbers", "steps", "taken"))
        self._begun, self._ended = facts["begun"], arrays["ended"].tolist()
        self._generator.bit_generator.state = facts["generator"]
        self._chunks = [arrays[f"chunk{i}"] for i in range(facts["chunks"])]
        self._rows = Columns()
        if "rows" in arrays:
            rows = _to_frame(arrays["rows"])
            self._rows.append({column.name: column.to_numpy() for column in rows})

    def _begin(self, ended: NDArray[np.intp]) -> None:
        """Close the ended episodes and decide which of those that follow to take."""
        self._ended += self._numbers[ended[self._taken[ended]]].tolist()
        self._numbers[ended] = self._begun + np.arange(len(ended))
        self._steps[ended] = 0
        self._begun += len(ended)
        self._taken[ended] = self._generator.random(len(ended)) < self._rate

    def _of(self, played: Played, taken: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        """What is kept of a step of the portfolios `taken`; indices copy, and the step's arrays may be used again."""
        step, account = played.step, played.step.account
        return {
            "episode": self._numbers[taken],
            "step": self._steps[taken],
            "t": played.t[taken],
            "observation_hash": observation_hashes(played.observation[taken]),
            "action": played.action[taken].astype(np.float32, copy=False),
            "reward": step.reward[taken],
            "equity": account.path[taken, -1],
            "drawdown": played.drawdown[taken],
            "turnover": account.transition.turnover[taken],
            "terminated": step.terminated[taken],
            "truncated": step.truncated[taken],
            **{f"{TERM}{kind}": contributions[taken] for kind, contributions in account.reward_terms.items()},
            **{f"{TRIGGERED}{kind}": where[taken] for kind, where in step.triggered.items()},
        }

    def _steps_of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as they are kept, by `STEP`."""
        t = rows["t"].to_numpy()
        terms, triggered = (_under(prefix, rows) for prefix in (TERM, TRIGGERED))
        termination = [pl.when(where).then(pl.lit(kind)) for kind, where in triggered.items()]
        made = {
            **{name: pl.lit(None) for name in ("value", "log_prob") if name not in rows.columns},
            "session": pl.lit(pl.Series(self._sessions[t])),
            "fill_session": pl.lit(pl.Series(self._sessions[t + self._wait])),
            "info": step_info(terms, pl.coalesce(*termination, NO_TERMINATION)),
        }
        return rows.select(made.get(name, pl.col(name)).cast(dtype).alias(name) for name, dtype in STEP.items())


def _under(prefix: str, rows: pl.DataFrame) -> dict[str, pl.Expr]:
    """The columns whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): pl.col(name) for name in rows.columns if name.startswith(prefix)}


def _to_array(frame: pl.DataFrame) -> NDArray[np.uint8]:
    """A frame as the bytes of one compressed Arrow stream; a context per column would cost more than the content."""
    table, buffer = frame.to_arrow(), pa.BufferOutputStream()
    with pa.CompressedOutputStream(buffer, ZSTD) as stream, pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(buffer.getvalue(), dtype=np.uint8)


def _to_frame(content: NDArray[np.uint8]) -> pl.DataFrame:
    stream = pa.CompressedInputStream(pa.BufferReader(content.tobytes()), ZSTD)
    return pl.DataFrame(pa.ipc.open_stream(stream).read_all())
