"""Bounds on numbers of the Mean-CVaR program, shared with the specs that build it."""

from typing import Annotated

from pydantic import AfterValidator, PositiveFloat

LARGEST = 1e100  # products of larger numbers overflow


def checked_risk_aversion(value: float) -> float:
    """Return the risk aversion if products with it neither vanish nor overflow.

    Raises:
        ValueError: if it is too small or too large.
    """
    if not 1.0 / LARGEST <= value <= LARGEST:
        raise ValueError(
            f"risk_aversion must be positive and finite, from {1.0 / LARGEST:g} to {LARGEST:g}, but is {value}; "
            "1 weighs CVaR as the mean"
        )
    return value


RiskAversion = Annotated[PositiveFloat, AfterValidator(checked_risk_aversion)]
