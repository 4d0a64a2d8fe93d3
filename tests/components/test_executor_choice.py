import sys

import pytest

from nvtrader_pipelines.components.executor import ProcessExecutor
from nvtrader_pipelines.components.executor_choice import EXECUTOR, make_executor
from nvtrader_pipelines.components.ray_executor import _start_ray


@pytest.mark.parametrize("kind", ["", "processes"])
def test_workers_without_ray_in_the_environment_are_processes(kind, monkeypatch):
    monkeypatch.setenv(EXECUTOR, kind)
    assert isinstance(make_executor(1), ProcessExecutor)


def test_unknown_executor_is_refused_by_name(monkeypatch):
    monkeypatch.setenv(EXECUTOR, "threads")
    with pytest.raises(ValueError, match="'threads'"):
        make_executor(1)


def test_ray_that_is_not_installed_is_refused_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv(EXECUTOR, "ray")
    with pytest.raises(ValueError, match=r"nvtrader-pipelines\[ray\]"):
        make_executor(1)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "somewhere"])
def test_address_at_which_nothing_answers_is_refused(address):
    with pytest.raises(ValueError, match=address):
        _start_ray(None, address)
