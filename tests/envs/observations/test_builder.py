import numpy as np
import pytest

from nvtrader_pipelines.envs.observations.builder import observation_hashes

ALL = 2**64 - 1
PRIMES = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)


def rotated(value, bits):
    return (value << bits | value >> (64 - bits)) & ALL


def stirred(lane, content):
    return rotated((lane + int.from_bytes(content, "little") * PRIMES[1]) & ALL, 31) * PRIMES[0] & ALL


def xxh64(content):
    """Compute XXH64 with seed 0 byte by byte, after the specification."""
    first, second, _, fourth, fifth = PRIMES
    state, at = fifth, len(content) // 32 * 32
    if at:
        lanes = [(first + second) & ALL, second, 0, -first & ALL]
        for i in range(0, at, 8):
            lanes[i // 8 % 4] = stirred(lanes[i // 8 % 4], content[i : i + 8])
        state = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & ALL
        for lane in lanes:
            state = ((state ^ stirred(0, lane.to_bytes(8, "little"))) * first + fourth) & ALL
    state, left = (state + len(content)) & ALL, content[at:]
    while len(left) >= 8:
        state, left = (rotated(state ^ stirred(0, left[:8]), 27) * first + fourth) & ALL, left[8:]
    if len(left) >= 4:
        word, left = int.from_bytes(left[:4], "little"), left[4:]
        state = (rotated(state ^ word * first & ALL, 23) * second + PRIMES[2]) & ALL
    for byte in left:
        state = rotated(state ^ byte * fifth & ALL, 11) * first & ALL
    state = (state ^ state >> 33) * second & ALL
    state = (state ^ state >> 29) * PRIMES[2] & ALL
    return state ^ state >> 32


@pytest.mark.parametrize(
    ("content", "known"), [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)]
)
def test_oracle_gives_the_published_hashes(content, known):
    assert xxh64(content) == known


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 8, 9, 10, 15, 16, 17, 31, 222])
def test_hash_is_signed_xxh64_of_the_bytes(length):
    observations = np.random.default_rng(length).standard_normal((5, length)).astype(np.float32)
    hashes = observation_hashes(observations)
    assert hashes.dtype == np.int64
    assert [int(number) & ALL for number in hashes] == [xxh64(row.astype("<f4").tobytes()) for row in observations]


def test_hash_does_not_depend_on_memory_layout():
    table = np.arange(20, dtype=np.float32).reshape(10, 2)
    changed = table.T.copy()
    changed[1, 3] = np.nextafter(changed[1, 3], np.float32(99))
    hashes = observation_hashes(table.T)
    assert hashes.tolist() == observation_hashes(table.T.copy()).tolist()
    assert (hashes == observation_hashes(changed)).tolist() == [True, False]
    assert observation_hashes(table.T[:0]).tolist() == []
