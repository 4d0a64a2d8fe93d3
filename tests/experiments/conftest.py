"""One small run for every test of what can be done with it."""

import pytest

from tests.experiments.small import planned, trained


@pytest.fixture(scope="session")
def plan():
    return planned()


@pytest.fixture(scope="session")
def run(plan):
    """The store of the whole run; only to be read."""
    return trained(plan)
