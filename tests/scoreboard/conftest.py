"""One small run for every test of what can be done with it."""

from tests.experiments.conftest import behind, plan, run

__all__ = ["behind", "plan", "run"]
