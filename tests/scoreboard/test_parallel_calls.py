import multiprocessing
import os
import time
from functools import partial

import pytest

from nvtrader_pipelines.scoreboard.contests import BUILT_IN
from nvtrader_pipelines.scoreboard.parallel_calls import MIN_PER_SHARD, call_in_parallel, shard_processes

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


def write_shard(home, source, contests, shard):
    """Leave a file with what a process was given."""
    (home.root / f"shard-{shard[0]}").write_text(f"{source} {len(contests)} {shard[1]}")


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def test_few_new_entrants_start_no_process(home, two_cores):
    with shard_processes(write_shard, home, "sample", BUILT_IN, 2 * MIN_PER_SHARD - 1) as n_shards:
        assert n_shards == 1
    assert list(home.root.glob("shard-*")) == []


def test_many_new_entrants_are_judged_in_a_process_per_core(home, two_cores):
    with shard_processes(write_shard, home, "sample", BUILT_IN, 9 * MIN_PER_SHARD) as n_shards:
        assert n_shards == 2
    assert [(path.name, path.read_text()) for path in home.root.glob("shard-*")] == [("shard-1", "sample 2 2")]
