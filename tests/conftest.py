"""Settings, homes and commands shared by all tests.

Slow imports are made inside fixtures, since the process that distributes the tests needs none of them.
"""

import atexit
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import Result
from hypothesis import settings

from nvtrader_pipelines.storage.home import Home

if TYPE_CHECKING:
    from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
    from nvtrader_pipelines.storage.store import Store

Invoke = Callable[..., Result]

settings.register_profile("shared_machine", deadline=None)
settings.load_profile("shared_machine")
gc.set_threshold(50_000, 20, 20)  # by default a fifth of the time of imports goes to garbage collection
atexit.register(gc.freeze)  # a last garbage collection would take seconds

SLOW_FIXTURES = {"built_home", "swept_home", "worked"}  # half a minute or more, built once per session


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests with slow fixtures first, then tests marked slow, then the rest.

    One process starts with the slow half and the other with the quick half, so that neither waits for a fixture of the
    other, and no long test is left for the end.
    """
    items.sort(
        key=lambda item: (not SLOW_FIXTURES.intersection(_fixtures(item)), item.get_closest_marker("slow") is None)
    )


def pytest_collection_finish() -> None:
    """Exclude imported modules from garbage collection."""
    gc.freeze()


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


@pytest.fixture(scope="session", autouse=True)
def _own_ledger() -> None:
    """Keep tests and their commands away from a ledger named in the environment."""
    from nvtrader_pipelines.storage.ledger.database import VARIABLE

    os.environ.pop(VARIABLE, None)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Folder that all processes of a test session share."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def built_home(shared_folder: Path) -> Home:
    """A home built by one `nvtrader materialize`; read it, never write it."""
    from tests.homes import build_home_once

    return build_home_once(shared_folder)


@pytest.fixture(scope="session")
def forked(shared_folder: Path, worker_id: str) -> Path:
    """Path of an `nvtrader` that runs in forks of a shared process, and so starts fast."""
    from tests.command_server import start_server_once

    return (
        start_server_once(shared_folder / "commands", os.getpid() if worker_id == "master" else os.getppid())
        / "nvtrader"
    )


@pytest.fixture(scope="session")
def swept_home(shared_folder: Path, forked: Path) -> Home:
    """A home with a short ablation; tests may add replays and forward runs."""
    from tests.homes import build_sweep_once

    return build_sweep_once(shared_folder, forked)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home folder."""
    place = Home(tmp_path / "home")
    place.landing.mkdir(parents=True)
    place.experiments.mkdir(parents=True)
    return place


@pytest.fixture
def store(home: Home) -> "Store":
    """Store of the empty home."""
    from nvtrader_pipelines.storage.store import Store

    return Store(home)


@pytest.fixture
def tables(store: "Store") -> "Warehouse":
    """Tables of the empty home."""
    return store.tables


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Home], Invoke]:
    """Function that returns the command, run in this process on a home."""
    from typer.testing import CliRunner

    from nvtrader_pipelines.service.cli.app import app

    def on(home: Home) -> Invoke:
        monkeypatch.setenv("NVTRADER_HOME", str(home.root))
        monkeypatch.setenv("DAGSTER_HOME", "")  # some commands set it; restored after the test
        return lambda *arguments, **options: CliRunner().invoke(app, list(arguments), **options)

    return on


@pytest.fixture
def invoke(built_home: Home, command: Callable[[Home], Invoke]) -> Invoke:
    """The command, run in this process on the built home."""
    return command(built_home)
