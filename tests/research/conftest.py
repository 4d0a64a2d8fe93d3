"""Homes with markets to search, built once; tests search copies."""

import pytest

from tests.homes import copy_home
from tests.research.search_homes import market, search_home

MARKETS = {"noise": {}, "planted": {"drift": 0.004}, "reversing": {"drift": 0.004, "reverses": True}}


@pytest.fixture(scope="session")
def searched_homes(tmp_path_factory):
    """Homes by market: without an edge, with one that lasts, and with one that changes sides."""
    folder = tmp_path_factory.mktemp("searched")
    return {name: search_home(folder / name, market(**settings)) for name, settings in MARKETS.items()}


@pytest.fixture
def noise_home(searched_homes, tmp_path):
    """A home whose names differ by chance only."""
    return copy_home(searched_homes["noise"], tmp_path / "home")


@pytest.fixture
def planted_home(searched_homes, tmp_path):
    """A home where half the names always earn more."""
    return copy_home(searched_homes["planted"], tmp_path / "home")


@pytest.fixture
def reversing_home(searched_homes, tmp_path):
    """A home where the half that earned more in one period earns less in the next."""
    return copy_home(searched_homes["reversing"], tmp_path / "home")
