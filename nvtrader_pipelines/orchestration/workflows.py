"""Jobs of workflows: each runs its steps, which are runs of other jobs, one after the other."""

import logging
from collections.abc import Callable, Iterator

import dagster as dg

from nvtrader_pipelines.orchestration import PipelineError
from nvtrader_pipelines.orchestration.jobs import JOBS
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS, YEARS, whole_history_tags
from nvtrader_pipelines.orchestration.run_job import run_job
from nvtrader_pipelines.orchestration.run_requirements import (
    PARTITION,
    partition_keys,
    require_config,
    require_partition,
)
from nvtrader_pipelines.orchestration.workflow_files import (
    WorkflowSpec,
    WorkflowStep,
    read_workflows,
    workflow_job_name,
)
from nvtrader_pipelines.runs.experiment_document import read_named_experiment
from nvtrader_pipelines.runs.registration import register_experiments
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store

_LOG = logging.getLogger(__name__)
WORKFLOW_RUN = "nvtrader/workflow_run"  # tag of the run of a step: the run of its workflow
LIMITS = ("nvtrader/training", "nvtrader/trading")  # tags by which a UI limits how many runs are under way
BEGIN = {"begin": dg.In(dg.Nothing)}
JOB_TAGS = {job.name: job.run_tags or {} for job in JOBS}  # by the jobs that a step may name
BuildDefinitions = Callable[[], dg.Definitions]


def workflow_jobs(home: Home, build: BuildDefinitions) -> list[dg.JobDefinition]:
    """Build the job of each workflow of a home; a file that is not valid is left out with a warning."""
    workflows = read_workflows(home, JOB_TAGS)
    for path, problem in workflows.problems.items():
        _LOG.warning("the workflow %s has no job: %s", path.name, problem)
    return [_workflow_job(spec, build) for spec in workflows.specs.values()]


def _workflow_job(spec: WorkflowSpec, build: BuildDefinitions) -> dg.JobDefinition:
    name, limits = workflow_job_name(spec.name), {tag for step in spec.steps for tag in JOB_TAGS[step.job]}

    @dg.op(name=f"{name}_check", description="Check every step before the first one runs.", out=dg.Out(dg.Nothing))
    def check(context: dg.OpExecutionContext, store: dg.ResourceParam[Store]) -> None:
        require_steps(store, context.instance, spec, build())

    steps = [_step_op(f"{name}_step_{i}_{step.job}", step, build) for i, step in enumerate(spec.steps, start=1)]

    @dg.job(
        name=name,
        description=f"Workflow {spec.name}. {spec.description}".strip(),
        tags={"nvtrader/layer": "workflow", "dagster/max_runtime": "604800"}  # seconds: a week
        | {tag: "yes" for tag in LIMITS if tag in limits},
        executor_def=dg.in_process_executor,
    )
    def chain() -> None:
        done = check()
        for step in steps:
            done = step(begin=done)

    return chain


def _step_op(name: str, step: WorkflowStep, build: BuildDefinitions) -> dg.OpDefinition:
    @dg.op(name=name, description=f"Run the job {step.job}.", ins=BEGIN, out=dg.Out(dg.Nothing))
    def run_step(context: dg.OpExecutionContext, store: dg.ResourceParam[Store]) -> None:
        job = build().resolve_job_def(step.job)
        loggers = {name: part for name, part in context.run_config.items() if name == "loggers"}
        for tags in _step_tags(store, context.instance, job, step):
            context.log.info(" ".join(filter(None, (step.job, tags.get(PARTITION)))))
            tags |= {WORKFLOW_RUN: context.run_id}
            config = {**step.config, **loggers}
            try:
                run_job(store, context.instance, job, tags=tags, partition_key=tags.get(PARTITION), run_config=config)
            except PipelineError as failure:
                raise PipelineError(str(failure)) from None  # the run of the step has the trace

    return run_step


def _step_tags(
    store: Store, instance: dg.DagsterInstance, job: dg.JobDefinition, step: WorkflowStep
) -> Iterator[dict[str, str]]:
    """Yield the tags of each run of a step: of its partition, of the versions of its experiment, or of all years.

    Raises:
        ValueError: if the market cannot run the experiment.
    """
    if not _names_experiment(job, step):
        yield _partition_tags(job, step)
        return
    registration = register_experiments(store, [read_named_experiment(store.home, str(step.partition))])
    for problem in registration.problems.values():
        raise ValueError(problem)
    instance.add_dynamic_partitions(EXPERIMENTS.name or "", registration.keys)
    for key in registration.keys:
        yield {PARTITION: key}


def _names_experiment(job: dg.JobDefinition, step: WorkflowStep) -> bool:
    """Whether a step has the name of an experiment in the place of a partition."""
    return job.partitions_def == EXPERIMENTS and step.partition is not None and "@" not in step.partition


def _partition_tags(job: dg.JobDefinition, step: WorkflowStep) -> dict[str, str]:
    if step.partition is None:
        return whole_history_tags() if job.partitions_def == YEARS else {}
    return {PARTITION: step.partition}


def require_steps(store: Store, instance: dg.DagsterInstance, spec: WorkflowSpec, defs: dg.Definitions) -> None:
    """Raise unless every step of a workflow names an existing partition or experiment, and a valid configuration.

    Raises:
        ValueError: with the step.
    """
    for i, step in enumerate(spec.steps, start=1):
        job = defs.resolve_job_def(step.job)
        try:
            if _names_experiment(job, step):
                read_named_experiment(store.home, str(step.partition))
            else:
                require_partition(step.job, partition_keys(job, instance), _partition_tags(job, step))
            require_config(store, job, step.config)
        except (StorageError, ValueError) as error:
            raise ValueError(f"step {i} of the workflow {spec.name} cannot run: {error}") from error
