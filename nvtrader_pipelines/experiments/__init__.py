"""Experiments: the frozen spec and its runtime."""
