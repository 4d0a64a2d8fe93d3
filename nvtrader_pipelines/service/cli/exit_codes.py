"""Exit codes, and errors printed in one line or as JSON; the trace only with --verbose."""

import json
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from errno import ENOSPC
from typing import Any

import typer
from typer.core import TyperGroup

from nvtrader_pipelines.execution.errors import TradingStopped
from nvtrader_pipelines.orchestration import PipelineError
from nvtrader_pipelines.storage.errors import StorageError

OK, FAILED, USAGE, BAD_INPUT, INTERRUPTED = 0, 1, 2, 3, 130
FAILURES = (PipelineError, TradingStopped)
TEMPORARY = re.compile(r"/\.([^/]+)\.[^./]+\.tmp$")  # end of a temporary path, with the final name
INTERRUPTION = "interrupted; finished steps are stored, run the command again to resume"
_as_json: ContextVar[bool] = ContextVar("errors_as_json", default=False)


def input_errors() -> tuple[type[Exception], ...]:
    """Exception types that blame the input of a command."""
    from polars.exceptions import PolarsError  # imported at the first error: slow, and many commands read no table

    return StorageError, ValueError, OSError, PolarsError


def _halts() -> type[Exception]:
    from nvtrader_pipelines.runs.interruptions import RunHalted  # imported at the first error: slow

    return RunHalted


def requests_json(arguments: Sequence[str]) -> bool:
    """Whether a command line requests JSON, even one that cannot be parsed."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=False)
    return any(
        one in {"--json", "--format=json", "-fjson"} or (one in {"--format", "-f"} and after == "json")
        for one, after in pairs
    )


class JsonErrorGroup(TyperGroup):
    """Group of commands whose errors, wrong usage included, are JSON where JSON is requested."""

    def main(self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - by keyword
        """Run a command line and exit."""
        arguments = sys.argv[1:] if args is None else list(args)
        if not (standalone_mode and requests_json(arguments)):
            return super().main(args, standalone_mode=standalone_mode, **options)
        before = _as_json.set(True)
        try:
            code = super().main(arguments, standalone_mode=False, **options)
        except typer.TyperException as error:
            print_error(error.format_message(), error.exit_code)
            code = error.exit_code
        finally:
            _as_json.reset(before)
        sys.exit(code)


def print_error(message: str, code: int, style: str = "red") -> None:
    """Print an error on stderr, in one line or as JSON."""
    if _as_json.get():
        sys.stderr.write(json.dumps({"error": message, "exit_code": code}) + "\n")
        return
    from nvtrader_pipelines.service.consoles import plain_console

    prefix = "" if code == INTERRUPTED else "error: "
    plain_console(stderr=True, soft_wrap=True).print(f"{prefix}{message}", style=style)


@contextmanager
def exit_on_error(*, verbose: bool) -> Iterator[None]:
    """Exit with a one-line error and an exit code, as `options.EPILOG` lists them, instead of a trace."""
    try:
        yield
    except (typer.Exit, typer.TyperException):  # the command's own exit code, and wrong usage
        raise
    except KeyboardInterrupt:
        message, code, style = INTERRUPTION, INTERRUPTED, "yellow"
    except _halts() as halt:
        message, code, style = str(halt), INTERRUPTED, "yellow"
    except (*FAILURES, *input_errors()) as error:
        message, code, style = _describe(error), FAILED if isinstance(error, FAILURES) else BAD_INPUT, "red"
        _print_trace(verbose=verbose)
    except Exception as error:  # noqa: BLE001 - last resort: print the type and how to see more
        text = " ".join(str(error).split())
        message, code, style = f"unexpected {type(error).__name__}: {text}; run again with --verbose", FAILED, ""
        _print_trace(verbose=verbose)
    else:
        return
    print_error(message, code, style)
    sys.exit(code)


def _describe(error: Exception) -> str:
    """Message of an error; if the system refuses a file, its path and the reason."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        path = TEMPORARY.sub(r"/\1", str(error.filename))
        reason = error.strerror[0].lower() + error.strerror[1:]
        return f"{path} cannot be read or written: {reason}; check the path, its permissions and the free space"
    if isinstance(error, OSError) and error.errno == ENOSPC:
        return "a file cannot be written: no space left on device; free some, then run the command again, or resume it"
    return str(error)


def _print_trace(*, verbose: bool) -> None:
    if verbose:
        traceback.print_exc()
