"""Drafts of experiments: content, YAML, and what is wrong with each field."""

from typing import Any

import yaml
from pydantic import ValidationError

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.components.explanation import problems_by_field
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.runs.registration import plan_problem
from nvtrader_pipelines.storage.store import Store


class CheckedDraft(Document):
    """Draft of an experiment."""

    content: dict[str, Any]  # of every field if it is valid, else as given
    yaml: str
    problems: dict[str, str]  # sentences by dotted path; empty path for the whole draft
    market_problem: str  # why the market cannot run it; empty if it can, or it is not valid
    version_id: str  # name@hash8; empty if it is not valid


def check_draft(store: Store, content: dict[str, Any]) -> CheckedDraft:
    """Check a draft as a file of an experiment is checked, and on its market."""
    try:
        spec = ExperimentSpec.model_validate(content)
    except ValidationError as error:
        problems = problems_by_field(error, ExperimentSpec)
        return CheckedDraft(
            content=content, yaml=format_draft(content), problems=problems, market_problem="", version_id=""
        )
    complete = spec.model_dump(mode="json")
    return CheckedDraft(
        content=complete,
        yaml=format_draft(complete),
        problems={},
        market_problem=plan_problem(store, spec) or "",
        version_id=spec.partition_key,
    )


def format_draft(content: dict[str, Any]) -> str:
    """Format a draft as YAML."""
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=False)
