"""Scenarios: a family of generators of future returns from past returns.

`draw` raises a ValueError if returns are not finite, not above -1, or fewer than two sessions or the horizon.
"""

from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family

FloatArray = NDArray[np.float64]
ScenarioCount = Annotated[int, Field(ge=500, le=50_000)]
Horizon = Annotated[int, Field(ge=1, le=60)]
BLOCK_SIZE = 32_000  # numbers per block, 256 KB: temporaries stay in the second-level cache
Bandwidth = Literal["scott"] | Annotated[float, Field(gt=0.0, le=10.0)]  # in standard deviations


class CommonRandomNumbers:
    """Generator that gives every draw of one size the same numbers.

    Differences between two draws are then not due to chance: trials that change anything but the scenarios see the same
    scenarios. Windows that slide or grow combine the same normals with nearly the same covariance, so their kernel
    noise stays; the drawn positions in the window are the same, too. The numbers depend on seed and size alone. The
    numbers of the last size are cached, since at 400 names drawing normals takes longer than everything else.

    Source: Glasserman (2003), section 4.2, on common random numbers.
    """

    def __init__(self, seed: int) -> None:
        """Use one `seed` for all trials that are compared."""
        self.seed = seed
        self._uniforms = self._normals = np.empty(0)

    def random(self, size: tuple[int, ...]) -> FloatArray:
        """Draw uniform numbers in [0, 1), read-only."""
        if self._uniforms.shape != size:
            self._uniforms = _freeze(np.random.default_rng((self.seed, 0, *size)).random(size))
        return self._uniforms

    def standard_normal(self, size: tuple[int, ...]) -> FloatArray:
        """Draw standard normal numbers, read-only."""
        if self._normals.shape != size:
            self._normals = _freeze(np.random.default_rng((self.seed, 1, *size)).standard_normal(size))
        return self._normals


class RepeatedNumbers:
    """Numbers that a new generator of `seed` draws: first uniform, then normal ones.

    Those of the last size are cached in the process, since draws with one seed repeat them at each rebalance.
    """

    def __init__(self, seed: int) -> None:
        self._seed, self._n_drawn = seed, 0

    def random(self, size: tuple[int, ...]) -> FloatArray:
        """Draw uniform numbers in [0, 1), read-only."""
        self._n_drawn = int(np.prod(size))
        return _uniforms_of(self._seed, size)

    def standard_normal(self, size: tuple[int, ...]) -> FloatArray:
        """Draw standard normal numbers, read-only."""
        return _normals_after(self._seed, self._n_drawn, size)


RandomNumbers = np.random.Generator | CommonRandomNumbers | RepeatedNumbers


class KernelDensity(Component):
    """Sessions drawn and smoothed by a Gaussian kernel that preserves mean and covariance.

    Each session is x = mean + (past - mean + bandwidth * noise) / sqrt(1 + bandwidth**2) in log returns, with noise of
    the full covariance C of the past (over T): x has exactly its mean and C. The sessions of a horizon h are
    independent, so their sum has mean h * mean and covariance h * C at any bandwidth; the noise of all of them
    is one normal of covariance h * bandwidth**2 * C. The moments preserved are those of log returns; those of
    the simple returns also depend on the shape of the distribution.

    Source: Silverman (1986), section 6.4.1; Silverman & Young (1987), the smoothed bootstrap with preserved variance.
    """

    kind: Literal["kde"] = "kde"
    n_scenarios: ScenarioCount = 5000
    horizon: Horizon = 1  # sessions
    bandwidth: Bandwidth = "scott"  # of the kernel, relative to the past; scott is T ** (-1 / (N + 4))

    def draw(self, returns: FloatArray, generator: RandomNumbers) -> FloatArray:
        """Draw simple returns over the horizon (S, N) from past simple session returns (T, N)."""
        logs = _log_returns(returns)
        width = _bandwidth(self.bandwidth, logs)
        mean, centered = logs.mean(axis=0), logs - logs.mean(axis=0)
        shrink = 1.0 / np.sqrt(1.0 + width**2)
        noise = shrink * width * _square_root(centered)
        return _draw_smoothed(mean + shrink * centered, noise, self.n_scenarios, self.horizon, generator)


class PlainKernelDensity(Component):
    """Sessions drawn from a plain Gaussian kernel density, wider than the past.

    The variance is 1 + bandwidth**2 times the past's. The kernel has bandwidth**2 times the sample covariance (over T -
    1) of the log returns; the sessions of a horizon are independent. Losses grow with the deviation: by 16 % at 8
    names, 504 sessions and Scott's bandwidth.

    Source: Scott (1992), section 6; the density of scipy.stats.gaussian_kde.
    """

    kind: Literal["plain_kde"] = "plain_kde"
    n_scenarios: ScenarioCount = 5000
    horizon: Horizon = 1  # sessions
    bandwidth: Bandwidth = "scott"  # of the kernel, relative to the past; scott is T ** (-1 / (N + 4))

    def draw(self, returns: FloatArray, generator: RandomNumbers) -> FloatArray:
        """Draw simple returns over the horizon (S, N) from past simple session returns (T, N)."""
        logs = _log_returns(returns)
        sample = np.sqrt(len(logs) / (len(logs) - 1.0))
        noise = _bandwidth(self.bandwidth, logs) * sample * _square_root(logs - logs.mean(axis=0))
        return _draw_smoothed(logs, noise, self.n_scenarios, self.horizon, generator)


class Historical(Component):
    """All T - horizon + 1 overlapping stretches of `horizon` past sessions, oldest first."""

    kind: Literal["historical"] = "historical"
    horizon: Horizon = 1  # sessions

    def draw(self, returns: FloatArray, generator: RandomNumbers) -> FloatArray:  # noqa: ARG002 - one signature
        """Compute returns over the horizon (T - horizon + 1, N) from past session returns (T, N)."""
        return np.expm1(_stretch_returns(_log_returns(returns), self.horizon))


class BlockBootstrap(Component):
    """Stretches of `horizon` consecutive past sessions, drawn at random with replacement.

    Dependence between sessions is preserved within the horizon. A long horizon leaves few stretches without overlap:
    504 sessions hold eight of 60.

    Source: Kuensch (1989), moving blocks, one per scenario.
    """

    kind: Literal["block_bootstrap"] = "block_bootstrap"
    n_scenarios: ScenarioCount = 5000
    horizon: Horizon = 1  # sessions

    def draw(self, returns: FloatArray, generator: RandomNumbers) -> FloatArray:
        """Draw simple returns over the horizon (S, N) from past simple session returns (T, N)."""
        possible = np.expm1(_stretch_returns(_log_returns(returns), self.horizon))
        return possible.take(_positions(generator.random((self.n_scenarios,)), len(possible)), axis=0)


class StationaryBootstrap(Component):
    """Past sessions in blocks of random length, drawn circularly.

    At each session a new block begins with probability 1 / mean_block, so block lengths are geometric, and each session
    of a scenario is equally likely to be any past session.

    Source: Politis & Romano (1994).
    """

    kind: Literal["stationary_bootstrap"] = "stationary_bootstrap"
    n_scenarios: ScenarioCount = 5000
    horizon: Horizon = 1  # sessions
    mean_block: Annotated[float, Field(ge=1.0, le=252.0)] = 10.0  # sessions

    def draw(self, returns: FloatArray, generator: RandomNumbers) -> FloatArray:
        """Draw simple returns over the horizon (S, N) from past simple session returns (T, N)."""
        logs = _log_returns(returns)
        return _compound(logs, self.sessions(len(logs), generator))

    def sessions(self, n_sessions: int, generator: RandomNumbers) -> NDArray[np.int64]:
        """Draw the positions of each scenario's past sessions, in order, (horizon, S)."""
        uniforms = generator.random((self.horizon, self.n_scenarios))
        drawn = np.empty(uniforms.shape, dtype=np.int64)
        drawn[0] = _positions(uniforms[0], n_sessions)
        for session in range(1, self.horizon):
            jump = uniforms[session] * self.mean_block  # below 1 a block begins, and jump is uniform
            following = drawn[session - 1] + 1
            following[following == n_sessions] = 0
            drawn[session] = np.where(jump < 1.0, _positions(jump, n_sessions), following)
        return drawn


Scenarios = Annotated[
    KernelDensity | PlainKernelDensity | Historical | BlockBootstrap | StationaryBootstrap,
    Field(discriminator="kind"),
    Family("scenarios"),
]


def require_tail(scenarios: Scenarios, history: int, confidence_level: float) -> None:
    """Raise a ValueError if the tail of scenarios drawn from `history` sessions is below one."""
    n_stretches = max(0, history - scenarios.horizon + 1)
    n_scenarios = n_stretches if isinstance(scenarios, Historical) else scenarios.n_scenarios
    if isinstance(scenarios, BlockBootstrap) and not n_stretches:
        n_scenarios = 0  # no stretch to draw
    tail = (1.0 - confidence_level) * n_scenarios
    if tail < 1.0 - 1e-9:
        raise ValueError(
            f"Mean-CVaR needs a tail of at least one return, but {n_scenarios} scenarios at {confidence_level:.1%} "
            f"leave {tail:.2f}; lower confidence_level, lengthen history or draw more"
        )


def _log_returns(returns: FloatArray) -> FloatArray:
    checked = np.ascontiguousarray(returns, dtype=np.float64)  # sums round by memory layout
    if checked.ndim != 2 or checked.shape[0] < 2 or checked.shape[1] < 1:
        raise ValueError(
            f"past returns need shape (T, N) with T of at least 2 and N of at least 1, got {checked.shape}"
        )
    missing = np.argwhere(~np.isfinite(checked))
    if len(missing):
        raise ValueError(
            f"past returns must be finite, but {len(missing)} of {checked.size} are not, the first at session "
            f"{missing[0, 0]} of name {missing[0, 1]}; drop the sessions or names that have gaps"
        )
    if checked.min() <= -1.0:
        session, name = np.unravel_index(checked.argmin(), checked.shape)
        raise ValueError(
            f"past simple returns must be above -1, but that of session {session} of name {name} is {checked.min():g}; "
            "a total loss has no log return, so drop the name or correct its price"
        )
    return np.log1p(checked)


def _bandwidth(bandwidth: float | str, logs: FloatArray) -> float:
    n_sessions, n_names = logs.shape
    return n_sessions ** (-1.0 / (n_names + 4)) if isinstance(bandwidth, str) else bandwidth


def _square_root(centered: FloatArray) -> FloatArray:
    """Return A (min(T, N), N) with A'A the covariance, by QR of the deviations.

    Nothing is inverted and the covariance is never formed, so identical or constant names, or more names than sessions,
    need no jitter; few sessions also need fewer normals. The signs of its rows are fixed like those of a Cholesky
    factor, so that a small change of the past is a small change of the noise.
    """
    triangle = np.linalg.qr(centered, mode="r")
    signs = np.where(np.diag(triangle) < 0.0, -1.0, 1.0)
    return signs[:, None] * triangle / np.sqrt(len(centered))


def _positions(uniforms: FloatArray, n_sessions: int) -> NDArray[np.int64]:
    """Map uniform numbers to positions; the product never rounds up to n_sessions."""
    return (uniforms * n_sessions).astype(np.int64)


def _draw_smoothed(
    logs: FloatArray, noise: FloatArray, n_scenarios: int, horizon: int, generator: RandomNumbers
) -> FloatArray:
    uniforms = generator.random((horizon, n_scenarios))
    normals = generator.standard_normal((n_scenarios, len(noise)))
    return _compound(logs, uniforms, (normals, np.sqrt(horizon) * noise))


def _compound(
    logs: FloatArray, drawn: NDArray[np.int64] | FloatArray, smoothing: tuple[FloatArray, FloatArray] | None = None
) -> FloatArray:
    """Compound drawn sessions (horizon, S), plus smoothing, to simple returns (S, N).

    Sessions are drawn as positions, or as uniform numbers. Smoothing is normals (S, K) times noise (K, N).
    """
    from nvtrader_pipelines.portfolio.scenario_loop import add_sessions  # numba takes long to import

    scale = len(logs) if drawn.dtype == np.float64 else 1
    n_scenarios, n_names = drawn.shape[1], logs.shape[1]
    totals = np.zeros((n_scenarios, n_names))
    step = max(1, BLOCK_SIZE // n_names)
    for start in range(0, n_scenarios, step):
        part = slice(start, start + step)
        total = totals[part]
        if smoothing is not None:
            np.matmul(smoothing[0][part], smoothing[1], out=total)
        add_sessions(logs, drawn[:, part], scale, total)
        np.expm1(total, out=total)
    return totals


@lru_cache(maxsize=1)
def _uniforms_of(seed: int, size: tuple[int, ...]) -> FloatArray:
    return _freeze(np.random.default_rng(seed).random(size))


@lru_cache(maxsize=1)
def _normals_after(seed: int, n_drawn: int, size: tuple[int, ...]) -> FloatArray:
    generator = np.random.default_rng(seed)
    generator.random(n_drawn)
    return _freeze(generator.standard_normal(size))


def _stretch_returns(logs: FloatArray, horizon: int) -> FloatArray:
    """Sum log returns over each stretch of `horizon` sessions, (T - horizon + 1, N)."""
    if horizon > len(logs):
        raise ValueError(
            f"the history must have at least the {horizon} sessions of the horizon, but has {len(logs)}; shorten the "
            "horizon or lengthen the history"
        )
    return np.lib.stride_tricks.sliding_window_view(logs, horizon, axis=0).sum(axis=-1)


def _freeze(numbers: FloatArray) -> FloatArray:
    numbers.flags.writeable = False
    return numbers
