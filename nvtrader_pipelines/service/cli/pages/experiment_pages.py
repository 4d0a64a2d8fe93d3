"""Page of an experiment."""

from collections.abc import Mapping
from typing import Any

import yaml

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.service.cli.output import print_line, print_lines, print_title


def print_experiment(document: Mapping[str, Any]) -> None:
    """Print an experiment: state, versions, last run, plan and resolved spec."""
    plan, last = document["plan"], document["last_run"]
    state = "archived" if document["is_archived"] else "registered" if document["is_registered"] else "not registered"
    run = f"{short_id(last['run_id'])} {last['status']}, {last['started_at']:%Y-%m-%d %H:%M}" if last else "none"
    print_lines(
        {
            "experiment": document["name"],
            "description": document["description"],
            "version": document["version"],
            "hash": document["spec_hash"],
            "state": state,
            "last run": run,
            "problem": plan.get("problem") or "",
            "plan": "" if plan.get("problem") else f"{plan['runs']} x {plan['folds']} folds x {plan['seeds']} seeds",
            "training": plan.get("training") or "",
            "variants": ", ".join(document["variants"]),
        }
    )
    for warning in plan.get("warnings") or ():
        print_line(f"note: {warning}", style="yellow")
    print_title("versions")
    for version in document["versions"]:
        print_line(f"  {version['partition_key']}  {version['created_at']:%Y-%m-%d %H:%M}")
    print_title("spec")
    print_line(yaml.safe_dump(document["spec"], sort_keys=False).rstrip())
