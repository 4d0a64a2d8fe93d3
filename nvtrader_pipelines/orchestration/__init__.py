"""Dagster: assets, checks, partitions, resources, jobs, schedules and sensors."""
