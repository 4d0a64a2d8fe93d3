"""Retries where waiting can help, and only there."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

MAX_RETRIES = 2
WAIT_SECONDS = 5.0


@contextmanager
def retry_on(*errors: type[Exception]) -> Iterator[None]:
    """Let Dagster try the step again after one of these errors; every other error needs a person."""
    try:
        yield
    except errors as error:
        raise dg.RetryRequested(max_retries=MAX_RETRIES, seconds_to_wait=WAIT_SECONDS) from error
