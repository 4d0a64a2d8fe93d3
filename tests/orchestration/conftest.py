"""An instance of Dagster in memory, and what a library is to blame for."""

from collections.abc import Iterator

import dagster as dg
import pytest

OF_MLFLOW = "ignore:The ``noload`` loader strategy is deprecated"  # its SQL store's own mapping, of SQLAlchemy


def pytest_configure(config: pytest.Config) -> None:
    """Ignore exactly that."""
    config.addinivalue_line("filterwarnings", OF_MLFLOW)


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    """Instance that the tests of a module share."""
    with dg.DagsterInstance.ephemeral() as found:
        yield found
