"""Homes with markets to search, built once; tests search copies."""

from types import SimpleNamespace

import pytest

from nvtrader_pipelines.research import trial_pool
from nvtrader_pipelines.research.trial_pool import TrialPool
from nvtrader_pipelines.storage.research_files import SessionFolder
from tests.homes import copy_home
from tests.research.search_homes import (
    EVEN,
    GRID,
    InThisProcess,
    cufolio,
    market,
    new_session,
    run_to_look,
    search_home,
)

MARKETS = {"noise": {}, "planted": {"drift": 0.004}, "reversing": {"drift": 0.004, "reverses": True}}


@pytest.fixture(scope="session")
def searched_homes(tmp_path_factory):
    """Homes by market: without an edge, with one that lasts, and with one that changes sides."""
    folder = tmp_path_factory.mktemp("searched")
    return {name: search_home(folder / name, market(**settings)) for name, settings in MARKETS.items()}


@pytest.fixture
def cheap_sessions(monkeypatch):
    """Judge trials in this process, to which those of workers are equal, and draw no picture of a report."""
    monkeypatch.setattr(trial_pool, "make_executor", lambda _n_workers, _modules, *shared: InThisProcess(*shared))
    monkeypatch.setattr("nvtrader_pipelines.storage.files.write_picture", lambda *_: None)


@pytest.fixture
def noise_home(searched_homes, cheap_sessions, tmp_path):
    """A home whose names differ by chance only."""
    return copy_home(searched_homes["noise"], tmp_path / "home")


@pytest.fixture
def planted_home(searched_homes, cheap_sessions, tmp_path):
    """A home where half the names always earn more."""
    return copy_home(searched_homes["planted"], tmp_path / "home")


@pytest.fixture
def reversing_home(searched_homes, cheap_sessions, tmp_path):
    """A home where the half that earned more in one period earns less in the next."""
    return copy_home(searched_homes["reversing"], tmp_path / "home")


@pytest.fixture(scope="session")
def searched_to_look(searched_homes, tmp_path_factory):
    """Home whose session has opened its look and ended there, with the look and the last sessions its workers held."""
    home = copy_home(searched_homes["planted"], tmp_path_factory.mktemp("looked") / "home")
    folder, panels, start = new_session(home, cufolio(EVEN), **GRID), [], TrialPool.__init__

    def record(pool, panel, *arguments):
        panels.append(panel.sessions[-1].item())
        start(pool, panel, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrialPool, "__init__", record)
        look = run_to_look(home, folder)
    return SimpleNamespace(home=home, session_id=folder.session_id, look=look, last_sessions=panels)


@pytest.fixture
def looked(searched_to_look, cheap_sessions, tmp_path):
    """Copy of that home, and the folder of its session."""
    home = copy_home(searched_to_look.home, tmp_path / "looked")
    return home, SessionFolder.of(home, searched_to_look.session_id)
