"""Settings and the built homes shared by every test; being inside `tests`, it also puts the repository on the path.

What takes seconds to import is imported by the fixtures that need it, for the process that hands tests out needs none.
"""

import atexit
import gc
import os
import signal
from collections.abc import Callable, Iterator
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

settings.register_profile("desk", deadline=None, max_examples=25)
settings.register_profile("nightly", deadline=None, max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "desk"))
gc.set_threshold(50_000, 20, 20)  # a search for garbage at every 700 objects is a fifth of what imports take
atexit.register(gc.freeze)  # after pytest's own last search for garbage, Python needs none, which takes seconds

BUILT = {"built_home", "swept_home", "worked"}  # fixtures of half a minute or more, each built once for all processes


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark as slow what takes a fixture that is."""
    if BUILT.intersection(_fixtures(item)):
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the modules that take what is built once, then with those that have slow tests.

    So nothing long is left for the end. A module stays together: one process builds its fixtures once.
    """
    ranks: dict[Path, tuple[bool, bool]] = {}
    for item in items:
        rank = not BUILT.intersection(_fixtures(item)), item.get_closest_marker("slow") is None
        ranks[item.path] = min(rank, ranks.get(item.path, rank))
    items.sort(key=lambda item: ranks[item.path])


def pytest_collection_finish() -> None:
    """What was imported is no garbage: no search for some goes through it again."""
    gc.freeze()


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


@pytest.fixture(scope="session", autouse=True)
def _own_ledger() -> None:
    """No test, and no command a test runs, writes into a person's own ledger."""
    from nvtrader_pipelines.storage.ledger.database import VARIABLE

    os.environ.pop(VARIABLE, None)


@pytest.fixture(scope="session", autouse=True)
def _unsynced() -> Iterator[None]:
    """Leave the files of tests to the operating system: only a failure of power would lose them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of a test session that its processes share."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def built_home(shared_folder: Path) -> Home:
    """The home that one real `nvtrader materialize` has built; read it, never write it."""
    from tests.homes import run_once

    return run_once(shared_folder)


@pytest.fixture(scope="session")
def forked(shared_folder: Path, worker_id: str) -> Path:
    """The command for what is not about its start: each time a fork of one process that all tests share."""
    from tests.commands import serve_once

    return serve_once(shared_folder / "commands", os.getpid() if worker_id == "master" else os.getppid()) / "nvtrader"


@pytest.fixture(scope="session")
def swept_home(shared_folder: Path, forked: Path) -> Home:
    """The home of a short ablation; replays and paper accounts may be added."""
    from tests.homes import sweep_once

    return sweep_once(shared_folder, forked)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let the processes of a test be interrupted, also where its runner ignores interrupts (in the background)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home folder, fresh for every test."""
    place = Home(tmp_path / "home")
    place.landing.mkdir(parents=True)
    place.experiments.mkdir(parents=True)
    return place


@pytest.fixture
def store(home: Home) -> "Store":
    """The store of the fresh home."""
    from nvtrader_pipelines.storage.store import Store

    return Store(home)


@pytest.fixture
def tables(store: "Store") -> "Warehouse":
    """The tables of the fresh home."""
    return store.tables


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Home], Invoke]:
    """The command in this process, on a home."""
    from typer.testing import CliRunner

    from nvtrader_pipelines.service.cli.app import app

    def on(home: Home) -> Invoke:
        monkeypatch.setenv("NVTRADER_HOME", str(home.root))
        monkeypatch.setenv("DAGSTER_HOME", "")  # some commands set it; it is set back after
        return lambda *arguments, **options: CliRunner().invoke(app, list(arguments), **options)

    return on


@pytest.fixture
def invoke(built_home: Home, command: Callable[[Home], Invoke]) -> Invoke:
    """The command in this process, on the built home."""
    return command(built_home)
