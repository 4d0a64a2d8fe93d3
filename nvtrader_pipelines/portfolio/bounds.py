"""Bounds on numbers of the Mean-CVaR program, shared with the specs that build it."""

from typing import Annotated

from pydantic import AfterValidator, PositiveFloat

MAX_MAGNITUDE = 1e100  # products of larger numbers overflow


def require_risk_aversion(value: float) -> float:
    """Return the risk aversion if products with it neither vanish nor overflow.

    Raises:
        ValueError: if it is too small or too large.
    """
    if not 1.0 / MAX_MAGNITUDE <= value <= MAX_MAGNITUDE:
        raise ValueError(
            f"risk_aversion must be from {1.0 / MAX_MAGNITUDE:g} to {MAX_MAGNITUDE:g}, but is {value}; "
            "1 weighs CVaR as the mean"
        )
    return value


RiskAversion = Annotated[PositiveFloat, AfterValidator(require_risk_aversion)]
