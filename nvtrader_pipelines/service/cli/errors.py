"""Errors as one sentence, with exit codes; the trace only when asked for."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from nvtrader_pipelines.execution.errors import NotReconciled
from nvtrader_pipelines.orchestration.pipeline_error import PipelineError
from nvtrader_pipelines.storage.errors import StorageError

OK, FAILED, USAGE, BAD_INPUT, INTERRUPTED = 0, 1, 2, 3, 130
FAILURES = (PipelineError, NotReconciled)


def bad_inputs() -> tuple[type[Exception], ...]:
    """Errors of what a command was given."""
    from polars.exceptions import PolarsError  # asked for once there is an error: a command without tables is spared it

    return StorageError, ValueError, OSError, PolarsError


@contextmanager
def one_sentence(*, verbose: bool) -> Iterator[None]:
    """End the program with a sentence and an exit code instead of a trace.

    Exit codes: 1 the pipeline failed, an account differs, or something unexpected, 3 bad input or a missing file, 130
    interrupted.
    """
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        yield
    except typer.Exit:  # its code is the command's own answer
        raise
    except KeyboardInterrupt:
        console.print("interrupted; what was finished is kept, run the command again to go on", style="yellow")
        sys.exit(INTERRUPTED)
    except (*FAILURES, *bad_inputs()) as error:
        if verbose:
            traceback.print_exc()
        console.print(f"error: {error}", style="red", markup=False)
        sys.exit(FAILED if isinstance(error, FAILURES) else BAD_INPUT)
    except Exception as error:  # noqa: BLE001 - the last resort: what it is and how to see more are told
        if verbose:
            traceback.print_exc()
        said = " ".join(str(error).split())
        console.print(f"error: unexpected {type(error).__name__}: {said}; run again with --verbose", markup=False)
        sys.exit(FAILED)
