"""Processes that judge shards of many new entrants and store the results for the caller."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from nvtrader_pipelines.policies.training import PRELOADED
from nvtrader_pipelines.scoreboard.contests import ContestSpec
from nvtrader_pipelines.scoreboard.parallel_calls import call_in_parallel
from nvtrader_pipelines.storage.home import Home

MIN_PER_SHARD = 8  # new entrants per process: starting one takes as long as judging five
Contests = Mapping[str, ContestSpec]
Shard = tuple[int, int]  # number of the shard, and number of shards
JudgeShard = Callable[[Home, str, Contests, Shard], None]


@contextmanager
def shard_processes(judge: JudgeShard, home: Home, source: str, contests: Contests, n_new: int) -> Iterator[int]:
    """Start a process for each shard of the entrants but the first; yield the number of shards.

    Each calls `judge` with the home, the source, its contests and its shard. At the end the processes are awaited;
    after an error they are killed. The caller computes the results that no process has stored.
    """
    n_shards = max(1, min(os.cpu_count() or 1, n_new // MIN_PER_SHARD))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    shards = [(number, n_shards) for number in range(1, n_shards)]
    with call_in_parallel(context, [partial(judge, home, source, dict(contests), shard) for shard in shards]):
        yield n_shards
