"""End of an interpreter without lines of libraries about their own memory."""

import atexit
import os
import sys
from functools import cache


@cache
def silence_exit() -> None:
    """Close stderr when the interpreter ends.

    DuckDB's binding writes 60 lines about Dagster's caches there.
    """
    atexit.register(_close_stderr)


def _close_stderr() -> None:
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
