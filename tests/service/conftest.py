"""The command in this process, on a home that is built; and a home to which runs may be added."""

from collections.abc import Callable

import pytest
from click.testing import Result
from typer.testing import CliRunner

from nvtrader_pipelines.service.cli import app
from nvtrader_pipelines.storage.home import Home
from tests.homes import shared_folder, sweep_once

Invoke = Callable[..., Result]


@pytest.fixture(scope="session")
def swept_home(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Home:
    """The home of a short ablation; replays and paper accounts may be added."""
    return sweep_once(shared_folder(tmp_path_factory.getbasetemp(), worker_id))


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Home], Invoke]:
    """The command in this process, on a home."""

    def on(home: Home) -> Invoke:
        monkeypatch.setenv("NVTRADER_HOME", str(home.root))
        monkeypatch.setenv("DAGSTER_HOME", "")  # some commands set it; it is set back after
        return lambda *arguments: CliRunner().invoke(app, list(arguments))

    return on


@pytest.fixture
def invoke(built_home: Home, command: Callable[[Home], Invoke]) -> Invoke:
    """The command in this process, on the built home."""
    return command(built_home)
