"""Calls in processes of their own, beside the work of the caller."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext, SpawnContext

from nvtrader_pipelines.policies.training import hide_main_module


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
