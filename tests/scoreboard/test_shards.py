import os

import pytest

from nvtrader_pipelines.scoreboard.contests import BUILT_IN
from nvtrader_pipelines.scoreboard.shards import MIN_PER_SHARD, shard_processes


def write_shard(home, source, contests, shard):
    """Leave a file with what a process was given."""
    (home.root / f"shard-{shard[0]}").write_text(f"{source} {len(contests)} {shard[1]}")


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def test_few_new_entrants_start_no_process(home):
    with shard_processes(write_shard, home, "sample", BUILT_IN, 2 * MIN_PER_SHARD - 1) as n_shards:
        assert n_shards == 1
    assert list(home.root.glob("shard-*")) == []


def test_many_new_entrants_are_judged_in_a_process_per_core(home):
    with shard_processes(write_shard, home, "sample", BUILT_IN, 9 * MIN_PER_SHARD) as n_shards:
        assert n_shards == 2
    assert [(path.name, path.read_text()) for path in home.root.glob("shard-*")] == [("shard-1", "sample 2 2")]
