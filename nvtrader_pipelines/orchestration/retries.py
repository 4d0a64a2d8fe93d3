"""Retries of steps after transient errors."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

MAX_RETRIES = 2
WAIT_SECONDS = 5.0


@contextmanager
def retry_on(*errors: type[Exception]) -> Iterator[None]:
    """Let Dagster retry the step after one of these errors; every other error needs a person."""
    try:
        yield
    except errors as error:
        raise dg.RetryRequested(max_retries=MAX_RETRIES, seconds_to_wait=WAIT_SECONDS) from error
