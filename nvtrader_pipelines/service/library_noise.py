"""Suppression of library output that no user can act on."""

import atexit
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Ignore warnings of Dagster and tqdm that a notebook shows, and silence the exit."""
    silence_exit()
    with warnings.catch_warnings():
        loop = (
            "coroutine 'BaseEventLoop.shutdown_asyncgens' was never awaited"  # Dagster's, if an event loop is running
        )
        warnings.filterwarnings("ignore", loop, RuntimeWarning)
        warnings.filterwarnings("ignore", "IProgress not found")  # tqdm's, without ipywidgets
        yield


@cache
def silence_exit() -> None:
    """Close stderr when the interpreter ends.

    DuckDB's binding writes 60 lines about Dagster's caches there.
    """
    atexit.register(_close_stderr)


def _close_stderr() -> None:
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
