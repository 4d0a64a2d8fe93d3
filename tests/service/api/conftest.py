"""Service of a built home, without a port, and a home with a plan that waits."""

import pytest
from starlette.testclient import TestClient

from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.service.api.access import Access, Guard
from nvtrader_pipelines.service.api.app import create_app
from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from tests.homes import copy_home

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


@pytest.fixture(scope="session")
def waiting(built_home, shared_folder):
    """Home whose account has a plan that waits, built once per test session; read it, never write it."""
    root, done = shared_folder / "waiting-home", shared_folder / "waiting-home.txt"
    with file_lock(shared_folder / "waiting-home.lock"):
        if not done.exists():
            client = client_of(copy_home(built_home, root))
            name = client.get("/api/nemorl/policies").json()["policies"][0]["policy"]
            client.post("/api/nemorl/policies/activate", json={"policy": name}, headers=AUTHORIZED)
            for _ in Desk(Store(Home(root)), by="ann").trade(until_waiting=True):
                pass
            done.touch()
    return Home(root)
