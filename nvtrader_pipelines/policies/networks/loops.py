"""Compiled loops of small networks and of PPO's update, in one file so that numba's cache mixes no versions."""

import math

import numpy as np
from numba import literal_unroll, njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]
HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
LIMIT = 7.90531110763549805  # beyond which tanh is 1 in float32
ODD = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
EVEN = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
NO_CLIPPING = -1.0  # range of values


@njit(cache=True, error_model="numpy")
def sample_actions(means: Floats, noise: Floats, log_std: Floats, actions: Floats, log_probs: Floats) -> None:
    """Write actions `noise` (n, A) standard deviations from their means, and their log-probabilities (n,)."""
    n, size = means.shape
    normalizer = 0.0
    for j in range(size):
        normalizer += log_std[j] + HALF_LOG_TAU
    for i in range(n):
        squares = 0.0
        for j in range(size):
            actions[i, j] = means[i, j] + noise[i, j] * math.exp(log_std[j])
            squares += noise[i, j] * noise[i, j]
        log_probs[i] = -0.5 * squares - normalizer


@njit(cache=True, error_model="numpy")
def _moments(rows: NDArray[np.int64], advantages: Floats) -> tuple[float, float]:
    """Mean and deviation of a minibatch's advantages."""
    n, mean, squares = len(rows), 0.0, 0.0
    for i in range(n):
        mean += float(advantages[rows[i]]) / n
    for i in range(n):
        squares += (float(advantages[rows[i]]) - mean) ** 2
    return mean, math.sqrt(squares / (n - 1)) + 1e-8


@njit(cache=True, error_model="numpy")
def loss_gradients(  # noqa: PLR0913 - flat arrays keep a compiled call cheap
    rows: NDArray[np.int64],
    means: Floats,
    values: Floats,
    actions: Floats,
    old_values: Floats,
    old_log_probs: Floats,
    advantages: Floats,
    returns: Floats,
    log_std: Floats,
    clip_range: float,
    clip_range_vf: float,
    ent_coef: float,
    vf_coef: float,
    normalizes: bool,  # noqa: FBT001 - compiled calls take no keywords
    d_means: Floats,
    d_values: Floats,
    d_log_std: Floats,
) -> tuple[float, float, float, float, float]:
    """Write the gradients of PPO's loss by means (n, A), values (n, 1) and log_std (A,) over chosen rows of a rollout.

    Returns policy loss, value loss, approximate KL divergence, share of clipped ratios and entropy. At a tie of both
    surrogates, torch's gradient is half of each: within the range the ratio's, beyond it that of an advantage of 0.
    """
    n, size = means.shape
    mean, deviation = _moments(rows, advantages) if normalizes and n > 1 else (0.0, 1.0)
    inverse, gradient_log_std, normalizer = np.empty(size), np.empty(size), 0.0
    for j in range(size):
        inverse[j], gradient_log_std[j] = math.exp(-log_std[j]), -ent_coef
        normalizer += log_std[j] + HALF_LOG_TAU
    policy_loss = value_loss = divergence = clipped = 0.0
    for i in range(n):
        row = rows[i]
        squares = 0.0
        for j in range(size):
            noise = (actions[row, j] - means[i, j]) * inverse[j]
            squares += noise * noise
        log_ratio = -0.5 * squares - normalizer - old_log_probs[row]
        ratio = math.exp(log_ratio)
        advantage = (advantages[row] - mean) / deviation
        surrogate = advantage * ratio
        bounded = advantage * min(max(ratio, 1.0 - clip_range), 1.0 + clip_range)
        is_within = abs(ratio - 1.0) <= clip_range
        policy_loss -= min(surrogate, bounded) / n
        divergence += (ratio - 1.0 - log_ratio) / n
        clipped += (not is_within) / n
        d_log_prob = -surrogate / n if is_within or surrogate < bounded else 0.0
        for j in range(size):
            noise = (actions[row, j] - means[i, j]) * inverse[j]
            d_means[i, j] = d_log_prob * noise * inverse[j]
            gradient_log_std[j] += d_log_prob * (noise * noise - 1.0)
        value, passes = values[i, 0], True
        if clip_range_vf >= 0.0:
            change = value - old_values[row]
            passes = abs(change) <= clip_range_vf
            value = old_values[row] + min(max(change, -clip_range_vf), clip_range_vf)
        error = value - returns[row]
        value_loss += error * error / n
        d_values[i, 0] = 2.0 * vf_coef * error / n if passes else 0.0
    for j in range(size):
        d_log_std[j] = gradient_log_std[j]
    return policy_loss, value_loss, divergence, clipped, normalizer + 0.5 * size


@njit(cache=True, error_model="numpy")
def tanh(hidden: Floats) -> None:
    """Replace values (n, m) by their tanh, within 4e-7, by Eigen's rational function of degree 13 and 6."""
    limit = np.float32(LIMIT)
    for i in range(hidden.shape[0]):
        for j in range(hidden.shape[1]):
            value = min(max(hidden[i, j], -limit), limit)
            square = value * value
            odd = np.float32(ODD[0])
            for coefficient in literal_unroll(ODD[1:]):
                odd = odd * square + np.float32(coefficient)
            even = np.float32(EVEN[0])
            for coefficient in literal_unroll(EVEN[1:]):
                even = even * square + np.float32(coefficient)
            hidden[i, j] = value * odd / even


@njit(cache=True, error_model="numpy")
def relu(hidden: Floats) -> None:
    """Replace negative values (n, m) by 0."""
    for i in range(hidden.shape[0]):
        for j in range(hidden.shape[1]):
            hidden[i, j] = max(hidden[i, j], np.float32(0.0))


@njit(cache=True, error_model="numpy")
def tanh_gradient(gradient: Floats, hidden: Floats) -> None:
    """Multiply a gradient (n, m) by the derivative of tanh, from its results."""
    for i in range(gradient.shape[0]):
        for j in range(gradient.shape[1]):
            gradient[i, j] *= np.float32(1.0) - hidden[i, j] * hidden[i, j]


@njit(cache=True, error_model="numpy")
def relu_gradient(gradient: Floats, hidden: Floats) -> None:
    """Multiply a gradient (n, m) by the derivative of ReLU, from its results."""
    for i in range(gradient.shape[0]):
        for j in range(gradient.shape[1]):
            if hidden[i, j] <= np.float32(0.0):
                gradient[i, j] = np.float32(0.0)


@njit(cache=True, error_model="numpy")
def adam_step(  # noqa: PLR0913
    parameters: Floats,
    gradient: Floats,
    mean: Floats,
    square: Floats,
    scale: float,
    rate: float,
    beta_1: float,
    beta_2: float,
    eps: float,
    step: int,
) -> None:
    """Take one step of Adam (Kingma & Ba 2015) by a gradient times `scale`, in place; `eps` is outside the root."""
    one = np.float32(1.0)
    b_1, b_2, factor, epsilon = np.float32(beta_1), np.float32(beta_2), np.float32(scale), np.float32(eps)
    size = np.float32(rate / (1.0 - beta_1**step))
    correction = np.float32(1.0 / math.sqrt(1.0 - beta_2**step))
    for i in range(len(parameters)):
        g = gradient[i] * factor
        m = b_1 * mean[i] + (one - b_1) * g
        v = b_2 * square[i] + (one - b_2) * g * g
        mean[i], square[i] = m, v
        parameters[i] -= size * m / (np.sqrt(v) * correction + epsilon)
