"""Due notifications, sent after what changes a home, for homes without a server."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    from nvtrader_pipelines.notifications.notification import CurrentStates
    from nvtrader_pipelines.notifications.send_due import SendingRound


def notify(store: Store, command: str = "", problem: str | None = None, *, with_runs: bool = False) -> None:
    """Send due notifications if a channel is configured, and warn on stderr if that fails.

    Args:
        store: store of the home.
        command: command whose outcome is recorded first; empty for none.
        problem: why it failed; None if it succeeded.
        with_runs: whether to read failed runs and checks, which imports Dagster.
    """
    from nvtrader_pipelines.notifications.channels import has_channels

    if not has_channels(store.home):
        return
    try:
        from nvtrader_pipelines.notifications.send_due import record_command

        if command and not sys.stderr.isatty():  # on a terminal a person has seen the error
            record_command(store.home, command, problem, datetime.now(UTC))
        for channel, reason in send_now(store, with_runs=with_runs).problems.items():
            _warn(f"the channel {channel}: {reason}")
    except Exception as error:  # noqa: BLE001 - notifications never change the outcome of a command
        _warn(str(error))


def send_now(store: Store, *, with_runs: bool) -> "SendingRound":
    """Send due notifications; without Dagster's runs if its instance cannot be opened."""
    from nvtrader_pipelines.notifications.home_states import home_states
    from nvtrader_pipelines.notifications.send_due import send_due

    at = datetime.now(UTC)
    return send_due(store.home, {**home_states(store, at), **(_run_states(store) if with_runs else {})}, at)


def _run_states(store: Store) -> "CurrentStates":
    from nvtrader_pipelines.orchestration.failed_runs import run_states
    from nvtrader_pipelines.orchestration.instance import open_instance

    try:
        with open_instance(store) as instance:
            return run_states(instance, datetime.now(UTC))
    except Exception as error:  # noqa: BLE001 - a damaged instance is often the failure to notify about
        _warn(f"failed runs cannot be read: {error}")
        return {}


def _warn(problem: str) -> None:
    from nvtrader_pipelines.service.consoles import warn

    warn(f"no notification was sent: {' '.join(problem.split())}")
