"""Page of a home's state, which fits a screen of 80 by 24 characters."""

from collections.abc import Sequence

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.notifications.home_status import HomeStatus, RunState
from nvtrader_pipelines.research.sentences import format_sharpe, format_trials
from nvtrader_pipelines.research.session_documents import SessionSummary
from nvtrader_pipelines.service.cli.output import print_line
from nvtrader_pipelines.service.consoles import wide_console

MAX_LINES = 4  # of a part; the rest is counted
LABEL = 9  # characters
WHOLE = {"home", "next"}  # parts to copy, never cut
STYLES = {"waits": "yellow", "failed": "red", "halted": "bold red"}


def print_status(status: HomeStatus) -> None:
    """Print each part in at most `MAX_LINES` lines, and the next command."""
    waiting = [f"plan {waiting_plan.identity}: {waiting_plan.subject}" for waiting_plan in status.waiting_plans]
    waiting += [why if why.startswith(name) else f"{name}: {why}" for name, why in status.refused_files.items()]
    failed = [
        *map(_format_run, status.failed_runs),
        *(f"`{name}`: {why}" for name, why in status.failed_commands.items()),
    ]
    parts = {
        "home": [status.home],
        "trades": [_format_active(status), *_format_accounts(status)],
        **({"bots": [", ".join(f"{bot} {state}" for bot, state in status.bots.items())]} if status.bots else {}),
        "runs": [*map(_format_run, status.running), *map(_format_search, status.searches)] or ["nothing"],
        "waits": waiting or ["nothing"],
        "failed": failed or ["nothing"],
        "ui": [ui_problem.body for ui_problem in status.ui_problems]
        or [status.ui or "not running: no schedule or sensor runs"],
        "halted": [status.halted or "no"],
        "next": [f"{status.next_step.sentence}: {status.next_step.command}"],
    }
    quiet = {"waits": not waiting, "failed": not failed, "halted": status.halted is None}
    for label, lines in parts.items():
        _print_part(label, lines, None if quiet.get(label) else STYLES.get(label))


def _print_part(label: str, lines: Sequence[str], style: str | None) -> None:
    room = max(wide_console().width - LABEL, LABEL)
    more = [f"… {len(lines) - MAX_LINES + 1} more; --json shows all"] if len(lines) > MAX_LINES else []
    shown = [*lines[: MAX_LINES - 1], *more] if more else lines
    for i, line in enumerate(shown):
        text = " ".join(line.split())
        cut = text if len(text) <= room or label in WHOLE else f"{text[: room - 1]}…"
        print_line(f"{label if i == 0 else '':<{LABEL}}{cut}", style)


def _format_active(status: HomeStatus) -> str:
    active = status.active
    if active is None:
        return "no policy is active: nvtrader policies activate NAME"
    return f"{active.policy} of run {short_id(active.run_id)}, since {active.activated_at:%Y-%m-%d} by {active.by}"


def _format_accounts(status: HomeStatus) -> list[str]:
    return [
        f"{account.account}: {account.value:,.2f} at {account.session}, {account.equity - 1:+.2%} since its opening"
        + (f": {account.ruin}" if account.ruin else "")
        for account in status.accounts
    ]


def _format_run(run: RunState) -> str:
    reward = f", mean reward {run.curve[-1].mean_reward:.3g}" if run.curve else ""
    return f"{short_id(run.run_id)} {run.partition_key} {run.status}: {run.state}{reward}"


def _format_search(search: SessionSummary) -> str:
    trials = format_trials(search.n_trials, search.budget)
    base = "" if search.base_sharpe is None else f", base {format_sharpe(search.base_sharpe)}"
    best = "" if search.best_sharpe is None else f", best {format_sharpe(search.best_sharpe)}"
    return f"search {search.session_id}: {trials}{best}{base}"
