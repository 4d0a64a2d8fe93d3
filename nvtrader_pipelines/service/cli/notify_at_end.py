"""Notifications at the end of commands that run jobs or trade, for homes without a server."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from nvtrader_pipelines.orchestration import PipelineError
from nvtrader_pipelines.service.cli.exit_codes import INTERRUPTED, OK
from nvtrader_pipelines.service.due_notifications import notify
from nvtrader_pipelines.storage.store import Store


@contextmanager
def notify_at_end(store: Store, command: str, *, with_runs: bool = False) -> Iterator[None]:
    """Send due notifications when the command ends; a failed delivery never changes its outcome.

    Args:
        store: store of the home.
        command: command line to repeat; its failure is a state until it succeeds.
        with_runs: whether to read failed runs and checks, which imports Dagster.
    """
    problem = None
    try:
        yield
    except KeyboardInterrupt:  # a person who interrupts needs no message
        raise
    except typer.Exit as end:
        failed = end.exit_code not in (OK, INTERRUPTED)
        problem = f"it ended with exit code {end.exit_code}; its output has the reason" if failed else None
        notify(store, command, problem, with_runs=with_runs)
        raise
    except Exception as error:
        from nvtrader_pipelines.runs.interruptions import RunHalted

        if not isinstance(error, PipelineError | RunHalted):  # a failed run of Dagster and a halt are own states
            problem = " ".join(str(error).split()) or type(error).__name__
        notify(store, command, problem, with_runs=with_runs)
        raise
    notify(store, command, problem, with_runs=with_runs)
