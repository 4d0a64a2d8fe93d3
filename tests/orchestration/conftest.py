"""The home that one real `nvtrader run` has built, shared by every test that only reads."""

import pytest

from nvtrader_pipelines.storage.home import Home
from tests.homes import run_once

OF_MLFLOW = "ignore:The ``noload`` loader strategy is deprecated"  # its SQL store's own mapping, of SQLAlchemy


def pytest_configure(config: pytest.Config) -> None:
    """Let through what a library is to blame for."""
    config.addinivalue_line("filterwarnings", OF_MLFLOW)


@pytest.fixture(scope="session")
def built_home(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Home:
    """A whole home; read it, never write it."""
    base = tmp_path_factory.getbasetemp()
    return run_once(base if worker_id == "master" else base.parent)
