"""Frozen specs, their JSON Schemas, explanations of invalid documents, and calls in worker processes."""
