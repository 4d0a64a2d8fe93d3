"""Pages of experiments: their facts, differences and plans, and the results of trainings."""

from collections.abc import Sequence

import polars as pl
import yaml

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.desk.account_activity import AccountActivity
from nvtrader_pipelines.runs.experiment_document import (
    ArchivedExperiments,
    ExperimentDocument,
    ExperimentPlan,
    NewExperiment,
    PlanProblem,
    version_before,
)
from nvtrader_pipelines.runs.market_summary import summarize_market
from nvtrader_pipelines.service.cli.family_commands import Answer
from nvtrader_pipelines.service.cli.output import (
    Format,
    print_differences,
    print_line,
    print_lines,
    print_title,
    write_rows,
)
from nvtrader_pipelines.service.cli.pages.account_pages import print_account
from nvtrader_pipelines.service.cli.pages.market_page import print_market, print_unchanged
from nvtrader_pipelines.service.cli.summary import print_summary
from nvtrader_pipelines.service.consoles import wide_console
from nvtrader_pipelines.storage.store import Store


def print_experiment(document: ExperimentDocument) -> None:
    """Print an experiment: state, versions, last run, plan and resolved spec."""
    last = document.last_run
    state = "archived" if document.is_archived else "registered" if document.is_registered else "not registered"
    print_lines(
        {
            "experiment": document.name,
            "description": document.description,
            "version": document.version,
            "hash": document.spec_hash,
            "state": state,
            "last run": f"{short_id(last.run_id)} {last.status}, {last.started_at:%Y-%m-%d %H:%M}" if last else "none",
            **_plan_lines(document.plan),
            "variants": ", ".join(document.variants),
        }
    )
    if isinstance(document.plan, ExperimentPlan):
        for warning in document.plan.warnings:
            print_line(f"note: {warning}", style="yellow")
    print_title("versions")
    for version in document.versions:
        print_line(f"  {version.partition_key}  {version.created_at:%Y-%m-%d %H:%M}")
    print_title("spec")
    print_line(yaml.safe_dump(document.spec, sort_keys=False).rstrip())


def _plan_lines(plan: ExperimentPlan | PlanProblem) -> dict[str, str]:
    if isinstance(plan, PlanProblem):
        return {"problem": plan.problem}
    return {"plan": f"{plan.runs} x {plan.folds} folds x {plan.seeds} seeds", "training": plan.training or ""}


def print_new(document: NewExperiment) -> None:
    """Print the file of a new experiment, and the next command."""
    print_line(f"{document.path}\nedit it, then: nvtrader experiments run {document.name}")


def print_comparison(answer: Answer) -> None:
    """Print the fields in which two experiments differ, or that there is no earlier version."""
    left, right = answer.arguments["left"], answer.arguments["right"]
    if right is None:
        left, right = version_before(answer.home.store, left), left
    if left is None:
        print_line(f"{right} has no earlier registered version")
    else:
        print_differences(answer.document, left, right)


def print_archived(document: ArchivedExperiments) -> None:
    """Print the names that were archived or put back."""
    print_line(f"{'archived' if document.archived else 'unarchived'}: {', '.join(document.names)}")


def print_smoke(rows: pl.DataFrame) -> None:
    """Print the extent of smoke runs."""
    for row in rows.iter_rows(named=True):
        print_line(
            f"{row['experiment']}: one of {row['n_folds']} folds and {row['n_seeds']} seeds, trained in "
            f"{row['timesteps'] or 0:,} steps, walked and judged in {row['seconds']:.1f} s: it works"
        )
    print_line("no result: nothing was stored, registered or counted as a trial", style="yellow")


def print_results(store: Store, names: Sequence[str], *, has_new_bars: bool) -> None:
    """Print the market and the summary of experiments; without names, of all."""
    summary = summarize_market(store)
    print_market(summary, wide_console()) if has_new_bars else print_unchanged(summary)
    print_summary(store, names, wide_console())


def print_next_of_app(name: str, month: AccountActivity | None) -> None:
    """Print the month that an application has traded, if any, and where it goes on."""
    if month:
        print_title("the last month on paper")
        print_account(month)
    print_title("go on")
    for line in (
        f"nvtrader runs show {name}",
        f"nvtrader portfolio --account {month.account}" if month else f"nvtrader policies activate {name}",
        f"nvtrader experiments new mine --like {name}    # change it: data/experiments/mine.yaml",
    ):
        print_line(f"  {line}")


PAGES = {
    "new": lambda answer: print_new(answer.document),
    "diff": print_comparison,
    "validate": lambda answer: write_rows(answer.document, Format.TABLE, ["warnings", "problem"]),
    "show": lambda answer: print_experiment(answer.document),
    "archive": lambda answer: print_archived(answer.document),
    "unarchive": lambda answer: print_archived(answer.document),
}
