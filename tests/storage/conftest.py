"""A home folder and its warehouse, fresh for every test; and one whose policy may trade."""

import shutil

import pytest

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.warehouse import Warehouse
from tests.storage.desks import DESKS, judged_home, make_active


@pytest.fixture
def home(tmp_path):
    place = Home(tmp_path / "home")
    place.landing.mkdir(parents=True)
    place.experiments.mkdir(parents=True)
    return place


@pytest.fixture
def lake(home):
    return Warehouse(home)


@pytest.fixture(scope="session")
def judged(tmp_path_factory):
    """A home with a tested run; only to be copied or read."""
    return judged_home(tmp_path_factory.mktemp("desk") / "home")


@pytest.fixture
def trading_home(judged, monkeypatch):
    """That home with its policy active, no account and no event yet."""
    lake, run = judged
    DESKS.clear()
    monkeypatch.delenv("NVTRADER_KILL_SWITCH", raising=False)
    for folder in (lake.home.runtime, lake.home.audit, lake.home.accounts):
        shutil.rmtree(folder, ignore_errors=True)
    make_active(lake, run)
    return lake, run
