import multiprocessing
import time
from functools import partial

import pytest

from nvtrader_pipelines.scoreboard.parallel_calls import call_in_parallel

SPAWN = multiprocessing.get_context("spawn")


def touch_and_wait(folder):
    """Leave a file, then work for long."""
    (folder / "started").touch()
    time.sleep(60.0)
    (folder / "waited").touch()


def touch(path):
    path.touch()


@pytest.mark.slow
def test_processes_are_awaited(tmp_path):
    with call_in_parallel(SPAWN, [partial(touch, tmp_path / name) for name in "ab"]):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.slow
def test_interrupted_caller_ends_its_processes(tmp_path):
    def interrupt():
        with call_in_parallel(SPAWN, [partial(touch_and_wait, tmp_path)]):
            while not (tmp_path / "started").exists():
                time.sleep(0.05)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert multiprocessing.active_children() == []
    assert not (tmp_path / "waited").exists()
