"""Timing luck: how far a Sharpe ratio depends on the session at which an account's decisions start.

Source: Hoffstein, Faber & Braun (2019), "Rebalance Timing Luck: The (Dumb) Luck of Smart Beta".
"""

from collections.abc import Sequence

Openings = Sequence[float]  # annual net Sharpe ratios; the second decision comes 1, 2, … rebal_freq sessions later

Range = tuple[float, float]  # smallest and largest


def opening_range(openings: Openings) -> Range | None:
    """Smallest and largest Sharpe ratio over the openings; None if there is only one."""
    return (min(openings), max(openings)) if len(openings) > 1 else None


def difference_range(openings: Openings, other: Openings) -> Range | None:
    """Smallest and largest difference of two accounts' Sharpe ratios over the openings.

    Accounts with equally many openings decide on the same sessions in each; others are compared in every pair.
    """
    pairs = (
        zip(openings, other, strict=True) if len(openings) == len(other) else [(a, b) for a in openings for b in other]
    )
    return opening_range([own - theirs for own, theirs in pairs])
