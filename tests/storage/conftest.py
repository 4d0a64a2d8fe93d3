"""A home folder and its warehouse, fresh for every test."""

import pytest

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.warehouse import Warehouse


@pytest.fixture
def home(tmp_path):
    place = Home(tmp_path / "home")
    place.landing.mkdir(parents=True)
    place.experiments.mkdir(parents=True)
    return place


@pytest.fixture
def lake(home):
    return Warehouse(home)
