"""Fork server shared by commands, so that training workers need no imports of their own, and its workers."""

import os
import time
from multiprocessing import forkserver, get_context

import psutil

from nvtrader_pipelines.policies import training
from nvtrader_pipelines.research import trial_pool

PRELOADED = [*training.PRELOADED, trial_pool.__name__, *trial_pool.SOLVER]  # what workers of any call import


def share_forkserver(preloaded: list[str] = PRELOADED) -> None:
    """Start the fork server; forks of this process use it instead of starting their own."""
    get_context("forkserver").set_forkserver_preload(preloaded)
    forkserver.ensure_running()
    forkserver._forkserver.ensure_running = lambda: None


def workers() -> set[psutil.Process]:
    """Living children of the fork server."""
    children = psutil.Process().children(recursive=True)
    return {child for child in children if child.ppid() != os.getpid() and child.status() != psutil.STATUS_ZOMBIE}


def kill_workers(before: set[psutil.Process]) -> None:
    """Kill the workers that have started since, and wait for the first one."""
    while not (started := workers() - before):
        time.sleep(0.01)
    for worker in started:
        worker.kill()
