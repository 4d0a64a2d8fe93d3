"""Processes that judge shares of many new entrants; their results are read from `warehouse/judgements`."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from nvtrader_pipelines.policies.training import PRELOADED
from nvtrader_pipelines.scoreboard.contests import ContestSpec
from nvtrader_pipelines.storage.home import Home

MIN_SHARE = 8  # new entrants per process: starting one takes as long as judging five
Contests = Mapping[str, ContestSpec]
Share = tuple[int, int]  # its number, and the number of shares
JudgeShare = Callable[[Home, str, Contests, Share], None]


@contextmanager
def share_processes(judge: JudgeShare, home: Home, source: str, contests: Contests, n_new: int) -> Iterator[int]:
    """Start a process for each share of the entrants but the first; yield the number of shares.

    Each calls `judge` with the home, the source, its contests, and the number of its share and of all shares.
    At the end the processes are awaited; after an error they are ended. Results that a process did not make are made by
    the caller.
    """
    n_shares = max(1, min(os.cpu_count() or 1, n_new // MIN_SHARE))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    given = judge, home, source, dict(contests)
    processes = [
        context.Process(target=_judge_share, args=(*given, (number, n_shares)), daemon=True)
        for number in range(1, n_shares)
    ]
    for process in processes:
        process.start()
    try:
        yield n_shares
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    finally:
        for process in processes:
            process.join()


def _judge_share(judge: JudgeShare, home: Home, source: str, contests: Contests, share: Share) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C
    judge(home, source, contests, share)
