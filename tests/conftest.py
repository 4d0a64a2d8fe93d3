"""Settings, homes and commands shared by all tests.

Slow imports are made inside fixtures, since the process that distributes the tests needs none of them.
"""

import atexit
import gc
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from typer.testing import Result

from nvtrader_pipelines.storage.home import Home
from tests.engines import copy_new_databases, share_engines

if TYPE_CHECKING:
    from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
    from nvtrader_pipelines.storage.store import Store
    from tests.notifications.servers import Webhook

pytest_plugins = ["tests.cpu_seconds"]
Invoke = Callable[..., Result]

os.environ.pop("COLUMNS", None)  # set by pytest-xdist; tables would leave out columns
settings.register_profile("quick", deadline=None, max_examples=5)
settings.register_profile("desk", deadline=None, max_examples=15)
settings.register_profile("nightly", deadline=None, max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "desk"))
share_engines()
gc.set_threshold(50_000, 20, 20)  # by default a fifth of the time of imports goes to garbage collection
atexit.register(gc.freeze)  # a last garbage collection would take seconds

SLOW_FIXTURES = {"run_guide", "built_home", "swept_home", "fast_nvtrader"}  # seconds and more, once per session
# Modules of many seconds in the order in which they begin. The first builds the home that many others wait for, the
# second needs none.
LONGEST = (
    *("test_guides", "test_trade_command", "test_train_walk_judge", "test_assets", "test_readme", "test_run_commands"),
    *(
        "test_trading_at_broker",
        "test_policy_commands",
        "test_portfolio",
        "test_sweeps",
        "test_training",
        "test_promote",
    ),
    *(
        "test_damaged_homes",
        "test_cards",
        "test_sensors",
        "test_definitions",
        "test_desk",
        "test_learner",
        "test_market",
    ),
    *("test_figures", "test_imports", "test_rounds", "test_code_reach", "test_grouped_ppo", "test_compaction"),
    *("test_processes", "test_mirror", "test_python_api", "test_file_access", "test_instance", "test_ingest_command"),
)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests with a slow fixture as slow."""
    if not _fixtures(item).isdisjoint(SLOW_FIXTURES):
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest modules first, then modules with slow tests, then the rest, so that no long test is left last."""
    has_slow = {item.path for item in items if item.get_closest_marker("slow")}
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (order.get(item.path.stem, len(order)), item.path not in has_slow))


def pytest_collection_finish() -> None:
    """Exclude imported modules from garbage collection."""
    gc.freeze()


def _fixtures(item: pytest.Item) -> set[str]:
    return set(getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session", autouse=True)
def _own_ledger() -> None:
    """Keep tests and their commands away from databases named in the environment."""
    for name in ("NVTRADER_LEDGER_URL", "NVTRADER_DATABASE_URL"):
        os.environ.pop(name, None)


@pytest.fixture(scope="session", autouse=True)
def _no_notifications() -> None:
    """Keep tests away from a channel named in the environment."""
    os.environ.pop("NVTRADER_NOTIFY_URL", None)


@pytest.fixture(scope="session", autouse=True)
def _no_language_model() -> None:
    """Keep tests and their commands away from an endpoint named in the environment."""
    for name in [name for name in os.environ if name.startswith("NVTRADER_LLM_")]:
        del os.environ[name]


@pytest.fixture(scope="session", autouse=True)
def _unsynced() -> Iterator[None]:
    """Leave the files of tests to the operating system: only a failure of power would lose them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _copied_databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Copy new databases from the first one of this process: migrations take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        copy_new_databases(tmp_path_factory.mktemp("databases"), patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def _warm_workers() -> Iterator[None]:
    """Fork all workers of this process from one server that has imported what any of them needs."""
    set_preload = forkserver.set_forkserver_preload

    def set_all(_: list[str]) -> None:
        from tests.forkserver import PRELOADED

        set_preload(PRELOADED)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forkserver, "set_forkserver_preload", set_all)
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Folder that all processes of a test session share."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def built_home(shared_folder: Path, fast_nvtrader: Path) -> Home:
    """A home built by one `nvtrader materialize`; read it, never write it."""
    from tests.homes import build_home_once

    return build_home_once(shared_folder, fast_nvtrader)


@pytest.fixture(scope="session")
def evaluated_home(shared_folder: Path) -> Home:
    """A home with an evaluated run of untrained policies; read it, never write it."""
    from tests.runs.untrained import build_evaluated_once

    return build_evaluated_once(shared_folder)


@pytest.fixture(scope="session")
def fast_nvtrader(shared_folder: Path, worker_id: str) -> Path:
    """Path of an `nvtrader` that runs in forks of a shared process, and so starts fast."""
    from tests.command_server import start_server_once

    return (
        start_server_once(shared_folder / "commands", os.getpid() if worker_id == "master" else os.getppid())
        / "nvtrader"
    )


@pytest.fixture(scope="session")
def swept_home(shared_folder: Path, fast_nvtrader: Path, built_home: Home) -> Home:
    """The built home with a short ablation; tests may add replays and forward runs."""
    from tests.homes import build_sweep_once

    return build_sweep_once(shared_folder, fast_nvtrader, built_home)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let the processes of a test be interrupted, also where its runner ignores interrupts (in the background)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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
def webhook(monkeypatch: pytest.MonkeyPatch) -> "Iterator[Webhook]":
    """A webhook on this machine, as the default channel of notifications."""
    from nvtrader_pipelines.notifications.channels import DEFAULT_VARIABLE
    from tests.notifications.servers import serve_webhook

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve_webhook() as server:
        monkeypatch.setenv(DEFAULT_VARIABLE, server.url)
        yield server


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
