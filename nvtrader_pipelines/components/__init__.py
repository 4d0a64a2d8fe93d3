"""Frozen specs, their JSON Schemas, and explanations of invalid documents."""
