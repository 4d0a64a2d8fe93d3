"""Diversity: over how many names, and how many independent bets, an account spreads itself."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE, trustworthiness
from threadpoolctl import threadpool_limits

from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError

N_EMBEDDED = 500  # actions; the time of a t-SNE grows faster than their number
_PERPLEXITY, _N_ITERATIONS = 30.0, 500
_MIN_EMBEDDED = 8
_NEIGHBORS = 5
_NOTHING = 1e-12  # weight, or share of the largest variance, that counts as none


@dataclass(frozen=True, eq=False)
class Embedding:
    """Actions in the plane, neighbours near one another, and how far that could be kept."""

    rows: NDArray[np.int64]  # (m,) which of the given actions were embedded
    points: NDArray[np.float64]  # (m, 2)
    trustworthiness: float  # 0 to 1: 1 where all neighbours in the plane are neighbours indeed


def weight_entropy(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy in nats of each decision's names (n,), 0 to ln N: -sum of w ln w with |w| scaled to sum 1.

    An account that holds no name has 0.

    Args:
        weights: (n, N) of the names, cash left out; short positions count by their size.

    Raises:
        ValueError: if there are no weights or one is not finite.
    """
    held = np.abs(_checked(weights))
    gross = held.sum(axis=1, keepdims=True)
    shares = np.divide(held, gross, out=np.zeros_like(held), where=gross > _NOTHING)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0.0)
    return -(shares * logs).sum(axis=1) + 0.0  # no negative zero


def average_correlation(weights: NDArray[np.float64], correlation: NDArray[np.float64]) -> float:
    """Mean correlation of an account's positions, each pair counting by the product of their sizes, -1 to 1.

    The correlation of two names' returns changes its sign where one is held short. A decision that holds fewer than
    two names has no pair and is left out.

    Args:
        weights: (n, N) of the names at each decision.
        correlation: (N, N) of the names' returns.

    Raises:
        ValueError: if the shapes do not fit or a number is not finite.
        UndefinedStatisticError: if no decision holds two names.

    Source: Tierens & Anadu (2004), weighted average correlation.
    """
    held = _checked(weights, correlation)
    together = np.einsum("ti,ij,tj->t", held, correlation, held, optimize=True) - (held**2).sum(axis=1)
    pairs = np.abs(held).sum(axis=1) ** 2 - (held**2).sum(axis=1)
    several = pairs > _NOTHING
    if not several.any():
        raise UndefinedStatisticError("no decision holds two names, so that no pair has a correlation")
    return float(np.clip(together[several] / pairs[several], -1.0, 1.0).mean())


def effective_bets(weights: NDArray[np.float64], covariance: NDArray[np.float64]) -> float:
    """Mean number of independent bets of an account's decisions, 1 to N.

    The names' covariance has principal portfolios e_k of variance l_k. A portfolio w holds f_k = e_k'w of each, of
    which comes the share p_k = l_k f_k^2 / sum of all of its variance; the number of bets is exp(-sum p_k ln p_k).
    A decision without risk, such as one for cash alone, has no bets and is left out.

    Args:
        weights: (n, N) of the names at each decision.
        covariance: (N, N) of the names' returns.

    Raises:
        ValueError: if the shapes do not fit or a number is not finite.
        UndefinedStatisticError: if no decision takes a risk.

    Source: Meucci (2009), effective number of bets on principal portfolios.
    """
    held = _checked(weights, covariance)
    variances, portfolios = np.linalg.eigh(covariance)
    risks = np.maximum(variances, 0.0) * (held @ portfolios) ** 2
    total = risks.sum(axis=1, keepdims=True)
    risky = total[:, 0] > _NOTHING * float(variances[-1]) * (held**2).sum(axis=1)
    if not risky.any():
        raise UndefinedStatisticError("no decision takes a risk, so that there are no bets to count")
    shares = risks[risky] / total[risky]
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0.0)
    return float(np.exp(-(shares * logs).sum(axis=1)).mean())


def embed(actions: NDArray[np.float64], seed: int = 0, n_embedded: int = N_EMBEDDED) -> Embedding:
    """A seeded sample of the actions (n, N) in the plane by t-SNE.

    Raises:
        ValueError: if there are no actions or one is not finite.
        UndefinedStatisticError: if there are fewer than eight, or all are the same.

    Source: van der Maaten & Hinton (2008), by scikit-learn, started from the principal components.
    """
    if len(actions) < _MIN_EMBEDDED:
        raise UndefinedStatisticError(f"a t-SNE needs {_MIN_EMBEDDED} actions, but got {len(actions)}")
    if np.ptp(_checked(actions), axis=0).max() <= _NOTHING:
        raise UndefinedStatisticError(f"a t-SNE needs actions that differ, but all {len(actions)} are the same")
    checked = _checked(actions)
    rows = np.arange(len(checked))
    if len(checked) > n_embedded:
        rows = np.sort(np.random.default_rng(seed).choice(len(checked), n_embedded, replace=False))
    sample = checked[rows]
    perplexity = min(_PERPLEXITY, (len(rows) - 1) / 3.0)
    machine = TSNE(2, perplexity=perplexity, init="pca", random_state=seed, max_iter=_N_ITERATIONS)
    with threadpool_limits(limits=1):  # threads cost more than they give here, and sums of theirs differ
        points = machine.fit_transform(sample).astype(np.float64)
        kept = float(trustworthiness(sample, points, n_neighbors=min(_NEIGHBORS, (len(rows) - 1) // 2)))
    return Embedding(rows, points, kept)


def _checked(weights: NDArray[np.float64], matrix: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    if weights.ndim != 2 or not weights.size or not np.isfinite(weights).all():
        raise ValueError(
            f"needs finite weights of shape (decisions, names), at least one of each, but got shape {weights.shape} "
            f"with {int((~np.isfinite(weights)).sum())} not finite"
        )
    names = weights.shape[1]
    if matrix is not None and (matrix.shape != (names, names) or not np.isfinite(matrix).all()):
        raise ValueError(
            f"needs a finite matrix of the {names} names that weights are of, but got shape {matrix.shape} with "
            f"{int((~np.isfinite(matrix)).sum())} not finite"
        )
    return weights
