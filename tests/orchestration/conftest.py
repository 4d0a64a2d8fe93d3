"""What these tests let through because a library is to blame for it."""

import pytest

from nvtrader_pipelines.storage.home import Home
from tests.homes import shared_folder, sweep_once

OF_MLFLOW = "ignore:The ``noload`` loader strategy is deprecated"  # its SQL store's own mapping, of SQLAlchemy


def pytest_configure(config: pytest.Config) -> None:
    """Ignore exactly that."""
    config.addinivalue_line("filterwarnings", OF_MLFLOW)


@pytest.fixture(scope="session")
def swept_home(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Home:
    """The home of a short ablation; replays and paper accounts may be added."""
    return sweep_once(shared_folder(tmp_path_factory.getbasetemp(), worker_id))
