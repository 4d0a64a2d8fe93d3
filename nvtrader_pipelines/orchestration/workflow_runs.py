"""Workflows of a home listed, and run in this process."""

from functools import partial

import dagster as dg

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.instance import open_instance
from nvtrader_pipelines.orchestration.progress_log import ProgressLog, Watch
from nvtrader_pipelines.orchestration.run_job import console_config, run_job
from nvtrader_pipelines.orchestration.run_requirements import PARTITION
from nvtrader_pipelines.orchestration.workflow_files import read_workflow, read_workflows, workflow_job_name
from nvtrader_pipelines.orchestration.workflows import JOB_TAGS, WORKFLOW_RUN, require_steps
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.views.publishing import publish


class ListedWorkflow(Document):
    """Workflow of data/workflows."""

    workflow: str
    job: str | None  # of Dagster
    description: str
    steps: str  # jobs and their partitions, in order
    problem: str | None  # why it cannot run


class StepRun(Document):
    """Run of a step of a workflow."""

    job: str
    partition: str | None
    run_id: str  # of Dagster
    status: str  # in Dagster's words


def list_workflows(home: Home) -> list[ListedWorkflow]:
    """List the workflows, then the files that are none."""
    workflows = read_workflows(home, JOB_TAGS)
    listed = [
        ListedWorkflow(
            workflow=name,
            job=workflow_job_name(name),
            description=spec.description,
            steps=", ".join(" ".join(filter(None, (step.job, step.partition))) for step in spec.steps),
            problem=None,
        )
        for name, spec in workflows.specs.items()
    ]
    return listed + [
        ListedWorkflow(workflow=path.stem, job=None, description="", steps="", problem=problem)
        for path, problem in workflows.problems.items()
    ]


def run_workflow(store: Store, name: str, watch: Watch | None = None, *, quiet: bool = False) -> list[StepRun]:
    """Run the steps of a workflow one after the other, and return their runs; one that fails is the last.

    Raises:
        NotFoundError, StorageError: as `read_workflow`.
        ValueError: if a step cannot run; then none has run.
        PipelineError: if a step fails.
        RunHalted: if the kill switch ends a step.
    """
    spec = read_workflow(store.home, name, JOB_TAGS)
    build = partial(build_defs, {"progress": ProgressLog(watch)} if watch else None, store.home)
    with open_instance(store) as instance:
        defs = build()
        require_steps(store, instance, spec, defs)
        job = defs.resolve_job_def(workflow_job_name(name))
        result = run_job(store, instance, job, run_config=console_config(quiet=quiet))
        publish(store)
        runs = instance.get_runs(dg.RunsFilter(tags={WORKFLOW_RUN: result.run_id}), ascending=True)
    return [
        StepRun(job=run.job_name, partition=run.tags.get(PARTITION), run_id=run.run_id, status=run.status.value)
        for run in runs
    ]
