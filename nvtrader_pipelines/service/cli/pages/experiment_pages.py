"""Page of an experiment."""

import yaml

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.service.cli.output import print_line, print_lines, print_title
from nvtrader_pipelines.service.documents.experiment_facts import ExperimentDocument, ExperimentPlan, PlanProblem


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
