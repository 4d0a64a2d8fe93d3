"""Fixtures of homes whose accounts people decide on."""

from tests.desk.conftest import judged, trading_home

__all__ = ["judged", "trading_home"]
