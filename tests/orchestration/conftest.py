"""An instance of Dagster in memory."""

from collections.abc import Iterator

import dagster as dg
import pytest


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    """Instance that the tests of a module share."""
    with dg.DagsterInstance.ephemeral() as found:
        yield found
