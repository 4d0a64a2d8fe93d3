"""Reconciliation: what an account should hold against what the broker's books say it holds."""

from collections.abc import Mapping
from dataclasses import dataclass

TOLERANCE = 1e-6  # shares: below what any broker keeps of a fraction


@dataclass(frozen=True)
class Difference:
    """A name that is not held as expected."""

    symbol: str
    expected: float  # shares
    actual: float  # shares

    @property
    def sentence(self) -> str:
        """What is wrong, for a person."""
        return f"{self.symbol}: {self.expected:.6g} shares expected, {self.actual:.6g} held"


def reconcile(
    expected: Mapping[str, float], actual: Mapping[str, float], tolerance: float = TOLERANCE
) -> list[Difference]:
    """Names whose shares differ by more than the tolerance, or are not a number on a side, in alphabetical order.

    Args:
        expected: shares by symbol that the account's own books say; a name that is not there is not held.
        actual: the same by the broker.
        tolerance: shares.

    Raises:
        ValueError: if the tolerance is negative or no number.
    """
    if not tolerance >= 0.0:
        raise ValueError(f"tolerance must be a number of shares of at least 0, but it is {tolerance}")
    pairs = [(name, expected.get(name, 0.0), actual.get(name, 0.0)) for name in sorted({*expected, *actual})]
    return [Difference(*pair) for pair in pairs if not abs(pair[1] - pair[2]) <= tolerance]  # NaN differs from all
