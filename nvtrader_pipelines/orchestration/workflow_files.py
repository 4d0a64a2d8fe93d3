"""Workflows: files that name jobs to run one after the other; imports no Dagster."""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.storage.documents import read_document, validate_document
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.files import escape_name
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.read_sources import note_read

MAX_STEPS = 100  # of a workflow, with those of the workflows that it names


class WorkflowStep(Component):
    """Step of a workflow: a job, or another workflow, whose steps then run in its place."""

    job: str  # name of a job or of a workflow
    partition: Annotated[str, Field(pattern=r"^[\w@-]+$", max_length=200)] | None = None  # or name of an experiment
    config: Annotated[dict[str, Any], Field(default_factory=dict)]  # run configuration of the job, as in the launchpad


class WorkflowSpec(Component):
    """Workflow: jobs that run one after the other until one fails."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$")]  # that of its file
    description: Annotated[str, Field(max_length=500)] = ""
    steps: Annotated[tuple[WorkflowStep, ...], Field(min_length=1, max_length=MAX_STEPS)]


class FoundWorkflows(NamedTuple):
    """Content of `data/workflows`: the usable workflows, and the problem of each other file."""

    specs: dict[str, WorkflowSpec]  # by name, each with the steps of jobs alone
    problems: dict[Path, str]


def workflow_job_name(workflow: str) -> str:
    """Name of a workflow's job; Dagster allows no - in it."""
    return f"workflow_{workflow.replace('-', '_')}"


def read_workflows(home: Home, jobs: Collection[str]) -> FoundWorkflows:
    """Read the files of `data/workflows`, whose steps must name these jobs, or each other without a circle."""
    note_read(home.workflows)
    files: dict[str, WorkflowSpec] = {}
    workflows = FoundWorkflows({}, {})
    for path in sorted(home.workflows.glob("*.yaml")):
        try:
            files[path.stem] = _read_file(path, jobs)
        except StorageError as error:
            workflows.problems[Path(escape_name(path))] = str(error)
    for name, spec in files.items():
        try:
            steps = tuple(islice(_job_steps(name, files, jobs), MAX_STEPS + 1))
            if len(steps) > MAX_STEPS:
                raise StorageError(f"{name}.yaml must have {MAX_STEPS} steps at most, but has more; split it")
        except StorageError as error:
            workflows.problems[home.workflows / f"{name}.yaml"] = str(error)
        else:
            workflows.specs[name] = spec.model_copy(update={"steps": steps})
    return workflows


def read_workflow(home: Home, name: str, jobs: Collection[str]) -> WorkflowSpec:
    """Read a workflow, with the steps of jobs alone.

    Raises:
        NotFoundError: if there is no such workflow.
        StorageError: if its file is not a valid workflow.
    """
    workflows = read_workflows(home, jobs)
    if problem := workflows.problems.get(home.workflows / f"{name}.yaml"):
        raise StorageError(problem)
    if name not in workflows.specs:
        names = f", or use one of: {', '.join(workflows.specs)}{suggest(name, [*workflows.specs])}"
        raise NotFoundError(
            f"there is no workflow {name!r}; write data/workflows/<name>.yaml{names if workflows.specs else ''}"
        )
    return workflows.specs[name]


def _read_file(path: Path, jobs: Collection[str]) -> WorkflowSpec:
    spec = validate_document(read_document(path), WorkflowSpec, f"{path.name} is not a valid workflow")
    if spec.name != path.stem:
        raise StorageError(f"{path.name} must hold the workflow {path.stem}, but its name is {spec.name!r}; rename one")
    if spec.name in jobs:
        raise StorageError(f"{path.name} must have another name than every job, but {spec.name} is one; rename it")
    return spec


def _job_steps(
    name: str, files: Mapping[str, WorkflowSpec], jobs: Collection[str], above: tuple[str, ...] = ()
) -> Iterator[WorkflowStep]:
    """Yield the steps of a workflow, with those of the workflows that it names in their places."""
    if name in above:
        circle = " → ".join((*above[above.index(name) :], name))
        raise StorageError(f"workflows must not name each other in a circle, but {circle}; remove one of these steps")
    if len(above) >= MAX_STEPS:
        raise StorageError(
            f"workflows must name each other {MAX_STEPS} levels deep at most, but {above[0]} does deeper"
        )
    for step in files[name].steps:
        if step.job in jobs:
            yield step
        elif step.job not in files:
            names = sorted({*jobs, *files})
            raise StorageError(
                f"{name}.yaml: a step must name one of {', '.join(names)}, but names {step.job!r}"
                f"{suggest(step.job, names)}"
            )
        elif step.partition or step.config:
            raise StorageError(
                f"{name}.yaml: a step that names a workflow must have neither partition nor config, but that of "
                f"{step.job} has; give them to the steps of {step.job}.yaml"
            )
        else:
            yield from _job_steps(step.job, files, jobs, (*above, name))
