"""Exit codes, and errors printed in one line; the trace only with --verbose."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from nvtrader_pipelines.execution.errors import NotReconciled
from nvtrader_pipelines.orchestration.pipeline_error import PipelineError
from nvtrader_pipelines.service.cli.output import plain_console
from nvtrader_pipelines.storage.errors import StorageError

OK, FAILED, USAGE, BAD_INPUT, INTERRUPTED = 0, 1, 2, 3, 130
FAILURES = (PipelineError, NotReconciled)


def input_errors() -> tuple[type[Exception], ...]:
    """Exception types that blame the input of a command."""
    from polars.exceptions import PolarsError  # imported at the first error: slow, and many commands read no table

    return StorageError, ValueError, OSError, PolarsError


@contextmanager
def exit_on_error(*, verbose: bool) -> Iterator[None]:
    """Exit with a one-line error and an exit code instead of a trace.

    Exit codes: 1 for a failed pipeline, an account that differs or an unexpected error, 3 for bad input or a missing
    file, 130 for an interruption.
    """
    console = plain_console(stderr=True, soft_wrap=True)
    try:
        yield
    except typer.Exit:  # the command's own exit code
        raise
    except KeyboardInterrupt:
        console.print("interrupted; finished steps are stored, run the command again to resume", style="yellow")
        sys.exit(INTERRUPTED)
    except (*FAILURES, *input_errors()) as error:
        if verbose:
            traceback.print_exc()
        console.print(f"error: {error}", style="red")
        sys.exit(FAILED if isinstance(error, FAILURES) else BAD_INPUT)
    except Exception as error:  # noqa: BLE001 - last resort: print the type and how to see more
        if verbose:
            traceback.print_exc()
        message = " ".join(str(error).split())
        console.print(f"error: unexpected {type(error).__name__}: {message}; run again with --verbose")
        sys.exit(FAILED)
