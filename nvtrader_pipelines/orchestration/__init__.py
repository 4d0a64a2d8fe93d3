"""The only place that knows Dagster: assets, checks, partitions, resources, jobs, schedules, sensors."""

from nvtrader_pipelines.orchestration.definitions import build_defs

__all__ = ["build_defs"]
