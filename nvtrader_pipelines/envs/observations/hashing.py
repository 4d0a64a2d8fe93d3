"""Hash of an observation's content, equal on every machine."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

_PRIMES = (
    np.uint64(11400714785074694791),
    np.uint64(14029467366897019727),
    np.uint64(1609587929392839161),
    np.uint64(9650029242287828579),
    np.uint64(2870177450012600261),
)
_P1, _P2, _P3, _P4, _P5 = _PRIMES
_64, _32 = np.uint64(64), np.uint64(32)
_STRIPE = 8  # words per stripe: four lanes of two


def observation_hashes(observations: NDArray[np.float32]) -> NDArray[np.int64]:
    """XXH64 of each observation's little-endian bytes with seed 0, as signed integers (n,).

    Source: Collet, the xxHash specification, version 0.1.1.
    """
    words = np.ascontiguousarray(observations, dtype="<f4").view(np.dtype("<u4")).astype(np.uint32, copy=False)
    hashes = np.empty(len(words), dtype=np.uint64)
    _xxh64(words, hashes)
    return hashes.view(np.int64)


@njit(cache=True)
def _rotate(value: np.uint64, bits: int) -> np.uint64:
    left = np.uint64(bits)
    return (value << left) | (value >> (_64 - left))


@njit(cache=True)
def _stir(lane: np.uint64, value: np.uint64) -> np.uint64:
    return _rotate(lane + value * _P2, 31) * _P1


@njit(cache=True)
def _read_pair(row: NDArray[np.uint32], at: int) -> np.uint64:
    return np.uint64(row[at]) | (np.uint64(row[at + 1]) << _32)


@njit(cache=True)
def _hash_stripes(row: NDArray[np.uint32]) -> np.uint64:
    a, b, c, d = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
    for at in range(0, len(row) - _STRIPE + 1, _STRIPE):
        a = _stir(a, _read_pair(row, at))
        b = _stir(b, _read_pair(row, at + 2))
        c = _stir(c, _read_pair(row, at + 4))
        d = _stir(d, _read_pair(row, at + 6))
    state = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
    for lane in (a, b, c, d):
        state = (state ^ _stir(np.uint64(0), lane)) * _P1 + _P4
    return state


@njit(cache=True)
def _xxh64(words: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> None:
    n_words = words.shape[1]
    for i in range(len(words)):
        row, at = words[i], n_words - n_words % _STRIPE
        state = (_hash_stripes(row) if at else _P5) + np.uint64(4 * n_words)
        while at + 2 <= n_words:
            state = _rotate(state ^ _stir(np.uint64(0), _read_pair(row, at)), 27) * _P1 + _P4
            at += 2
        if at < n_words:
            state = _rotate(state ^ (np.uint64(row[at]) * _P1), 23) * _P2 + _P3
        state = (state ^ (state >> np.uint64(33))) * _P2
        state = (state ^ (state >> np.uint64(29))) * _P3
        hashes[i] = state ^ (state >> _32)
