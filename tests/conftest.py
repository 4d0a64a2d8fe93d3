"""Settings and the built home shared by every test; being inside `tests`, it also puts the repository on the path."""

import os

import pytest
from hypothesis import settings

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.database import VARIABLE
from tests.homes import run_once

os.environ.pop(VARIABLE, None)  # no test, and no command a test runs, writes into a person's own ledger
settings.register_profile("shared_machine", deadline=None)
settings.load_profile("shared_machine")


@pytest.fixture(scope="session")
def built_home(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Home:
    """The home that one real `nvtrader run` has built; read it, never write it."""
    base = tmp_path_factory.getbasetemp()
    return run_once(base if worker_id == "master" else base.parent)
