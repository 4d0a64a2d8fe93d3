"""Service of a built home, without a port."""

import pytest
from starlette.testclient import TestClient

from nvtrader_pipelines.service.api.app import create_app
from nvtrader_pipelines.service.api.guard import Access, Guard
from nvtrader_pipelines.storage.store import Store

TOKEN = "t0ken"
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}


def application(home, host="127.0.0.1"):
    """Service of a home, with its guard."""
    access = Access(host, 8000, TOKEN)
    return Guard(create_app(Store(home), access, "ann"), access)


def client_of(home, host="127.0.0.1", **options):
    """Client of the service of a home."""
    return TestClient(application(home, host), f"http://{host}:8000", follow_redirects=False, **options)


@pytest.fixture(scope="module")
def client(built_home):
    """Client that reads the shared home."""
    return client_of(built_home)
