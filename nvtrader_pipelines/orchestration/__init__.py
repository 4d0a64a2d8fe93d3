"""The only place that knows Dagster: assets, checks, partitions, resources, jobs, schedules, sensors."""
