"""Diversity: entropy, correlation and effective bets of an account's weights, and embedded actions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError

N_EMBEDDED = 500  # actions; t-SNE takes more than linear time
_PERPLEXITY, _N_ITERATIONS = 30.0, 500
_MIN_EMBEDDED = 8
_NEIGHBORS = 5
_NOTHING = 1e-12  # weight, or share of the largest variance, that counts as 0


@dataclass(frozen=True, eq=False)
class Embedding:
    """Actions embedded in the plane, with the trustworthiness of neighborhoods."""

    rows: NDArray[np.int64]  # (m,) indices of the embedded actions
    points: NDArray[np.float64]  # (m, 2)
    trustworthiness: float  # 0 to 1; 1 if all neighbors in the plane are true neighbors


@takes_arrays
def weight_entropy(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy of each decision's weights (n,) in nats: -sum of w ln w with |w| scaled to sum 1; 0 if in cash.

    Weights (n, N) are of the names, without cash; short positions count by size.

    Raises:
        ValueError: if there are no weights or one is not finite.
    """
    held = np.abs(_require_weights(weights))
    gross = held.sum(axis=1, keepdims=True)
    shares = np.divide(held, gross, out=np.zeros_like(held), where=gross > _NOTHING)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0.0)
    return -(shares * logs).sum(axis=1) + 0.0  # no negative zero


@takes_arrays
def average_correlation(weights: NDArray[np.float64], correlation: NDArray[np.float64]) -> float:
    """Mean pairwise correlation of an account's positions, weighted by the product of sizes, -1 to 1.

    Weights (n, N) are of each decision, the correlation (N, N) of the names' returns. Short positions flip the sign of
    a correlation. Decisions with fewer than two names are left out.

    Raises:
        ValueError: if the shapes do not fit or a number is not finite.
        UndefinedStatisticError: if no decision holds two names.

    Source: Tierens & Anadu (2004), weighted average correlation.
    """
    held = _require_weights(weights, correlation)
    together = np.einsum("ti,ij,tj->t", held, correlation, held, optimize=True) - (held**2).sum(axis=1)
    pairs = np.abs(held).sum(axis=1) ** 2 - (held**2).sum(axis=1)
    several = pairs > _NOTHING
    if not several.any():
        raise UndefinedStatisticError("no decision holds two names, so there is no correlation")
    return float(np.clip(together[several] / pairs[several], -1.0, 1.0).mean())


@takes_arrays
def effective_bets(weights: NDArray[np.float64], covariance: NDArray[np.float64]) -> float:
    """Mean number of independent bets of an account's decisions, 1 to N.

    The covariance has principal portfolios e_k of variance l_k. A portfolio w holds f_k = e_k'w of each, which
    contributes the share p_k = l_k f_k^2 / sum of its variance; the number of bets is exp(-sum p_k ln p_k). Decisions
    without risk, such as cash alone, are left out. Weights are (n, N), the covariance (N, N).

    Raises:
        ValueError: if the shapes do not fit or a number is not finite.
        UndefinedStatisticError: if no decision has risk.

    Source: Meucci (2009), effective number of bets on principal portfolios.
    """
    held = _require_weights(weights, covariance)
    variances, portfolios = np.linalg.eigh(covariance)
    risks = np.maximum(variances, 0.0) * (held @ portfolios) ** 2
    total = risks.sum(axis=1, keepdims=True)
    risky = total[:, 0] > _NOTHING * float(variances[-1]) * (held**2).sum(axis=1)
    if not risky.any():
        raise UndefinedStatisticError("no decision has risk, so there are no bets")
    shares = risks[risky] / total[risky]
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0.0)
    return float(np.exp(-(shares * logs).sum(axis=1)).mean())


@takes_arrays
def embed(actions: NDArray[np.float64], seed: int = 0, n_embedded: int = N_EMBEDDED) -> Embedding:
    """Embed a seeded sample of the actions (n, N) in the plane by t-SNE.

    Raises:
        ValueError: if there are no actions or one is not finite.
        UndefinedStatisticError: if there are fewer than eight, or all are equal.

    Source: van der Maaten & Hinton (2008), by scikit-learn, started from the principal components.
    """
    from sklearn.manifold import TSNE, trustworthiness  # half a second to import

    if len(actions) < _MIN_EMBEDDED:
        raise UndefinedStatisticError(f"t-SNE needs {_MIN_EMBEDDED} actions, got {len(actions)}")
    if np.ptp(_require_weights(actions), axis=0).max() <= _NOTHING:
        raise UndefinedStatisticError(f"t-SNE needs actions that differ, but all {len(actions)} are equal")
    rows = np.arange(len(actions))
    if len(actions) > n_embedded:
        rows = np.sort(np.random.default_rng(seed).choice(len(actions), n_embedded, replace=False))
    sample = actions[rows]
    perplexity = min(_PERPLEXITY, (len(rows) - 1) / 3.0)
    tsne = TSNE(2, perplexity=perplexity, init="pca", random_state=seed, max_iter=_N_ITERATIONS)
    with threadpool_limits(limits=1):  # faster with one thread, and deterministic
        points = tsne.fit_transform(sample).astype(np.float64)
        trust = float(trustworthiness(sample, points, n_neighbors=min(_NEIGHBORS, (len(rows) - 1) // 2)))
    return Embedding(rows, points, trust)


def _require_weights(weights: NDArray[np.float64], matrix: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    if weights.ndim != 2 or not weights.size or not np.isfinite(weights).all():
        n_bad = int((~np.isfinite(weights)).sum())
        raise ValueError(f"weights: needs (decisions, names), got shape {weights.shape}, {n_bad} not finite")
    names = weights.shape[1]
    if matrix is not None and (matrix.shape != (names, names) or not np.isfinite(matrix).all()):
        n_bad = int((~np.isfinite(matrix)).sum())
        raise ValueError(f"matrix: needs ({names}, {names}), got shape {matrix.shape}, {n_bad} not finite")
    return weights
