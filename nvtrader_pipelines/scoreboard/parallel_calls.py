"""Calls in processes of their own, beside the work of the caller."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.context import ForkServerContext, SpawnContext

from nvtrader_pipelines.policies.training import PRELOADED, hide_main_module
from nvtrader_pipelines.scoreboard.contests import ContestSpec
from nvtrader_pipelines.storage.home import Home

MIN_PER_SHARD = 8  # new entrants per process: starting one takes as long as judging five
Contests = Mapping[str, ContestSpec]
Shard = tuple[int, int]  # number of the shard, and number of shards


@contextmanager
def call_in_parallel(context: SpawnContext | ForkServerContext, calls: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Make each call in its own process; await them at the end, or kill them after an error."""
    started = [context.Process(target=_call, args=(call,), daemon=True) for call in calls]
    with hide_main_module():
        for process in started:
            process.start()
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()  # a library may have given it a handler of SIGTERM
        raise
    finally:
        for process in started:
            process.join()


def _call(call: Callable[[], None]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C
    call()


@contextmanager
def shard_processes(
    judge: Callable[[Home, str, Contests, Shard], None], home: Home, source: str, contests: Contests, n_new: int
) -> Iterator[int]:
    """Judge every shard of the entrants but the first in its own process; yield the number of shards.

    The caller computes the results that no process has stored.
    """
    n_shards = max(1, min(os.cpu_count() or 1, n_new // MIN_PER_SHARD))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    shards = [(number, n_shards) for number in range(1, n_shards)]
    with call_in_parallel(context, [partial(judge, home, source, dict(contests), shard) for shard in shards]):
        yield n_shards
