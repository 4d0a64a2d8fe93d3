"""Dagster: assets, checks, partitions, resources, jobs, schedules and sensors."""


class PipelineError(RuntimeError):
    """Failure of a pipeline step, with the message of the step."""
