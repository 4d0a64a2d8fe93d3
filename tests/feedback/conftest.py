"""Fixtures of homes whose accounts people decide on."""

from tests.desk.conftest import active_home, judged, trading_home

__all__ = ["active_home", "judged", "trading_home"]
