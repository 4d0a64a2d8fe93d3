"""What numbers the program of a portfolio takes, said once for it and for the specs that it is built from."""

from typing import Annotated

from pydantic import AfterValidator, PositiveFloat

LARGEST = 1e100  # squares and products of more overflow


def checked_risk_aversion(value: float) -> float:
    """The value.

    Raises:
        ValueError: if it is so small or large that products of it vanish or overflow.
    """
    if not 1.0 / LARGEST <= value <= LARGEST:
        raise ValueError(
            f"risk_aversion must be positive and finite, from {1.0 / LARGEST:g} to {LARGEST:g}, but is {value}; "
            "1 weighs CVaR as the mean"
        )
    return value


RiskAversion = Annotated[PositiveFloat, AfterValidator(checked_risk_aversion)]
