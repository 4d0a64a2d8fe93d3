"""What these tests let through because a library is to blame for it."""

import pytest

OF_MLFLOW = "ignore:The ``noload`` loader strategy is deprecated"  # its SQL store's own mapping, of SQLAlchemy


def pytest_configure(config: pytest.Config) -> None:
    """Ignore exactly that."""
    config.addinivalue_line("filterwarnings", OF_MLFLOW)
