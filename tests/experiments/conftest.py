"""One small run for every test of what can be done with it, and a copy of the code."""

from functools import cache

import pytest

from nvtrader_pipelines.experiments.recorded_folds import Parent, fold_dates
from tests.experiments.copied_package import package  # noqa: F401 - a fixture
from tests.experiments.pipelines import TIMINGS, piped, timed
from tests.experiments.small import planned, trained


@pytest.fixture(scope="session")
def plan():
    return planned()


@pytest.fixture(scope="session")
def run(plan):
    """The store of the whole run; only to be read."""
    return trained(plan)


@pytest.fixture(scope="session")
def parent(plan):
    """The run as the parent of its replays."""
    return Parent(plan.run_id, fold_dates(plan))


@pytest.fixture(scope="session")
def behind(plan, run):
    """The plan and the store of the run behind the pipeline with a timing, by the timing's name; only to be read."""
    return cache(lambda timing: piped(plan, run, timed(TIMINGS[timing])))
