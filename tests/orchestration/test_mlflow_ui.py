"""MLflow's UI as `nvtrader mlflow` serves it."""

import json
import signal
import subprocess
import urllib.request

import psutil
import pytest

from nvtrader_pipelines.orchestration.ui_processes import HOST, require_free
from tests.homes import NVTRADER, environment, nvtrader, small_home
from tests.orchestration.test_ui import free_port

PATIENCE = 300.0  # seconds


def experiments(port) -> set[str]:
    url = f"http://{HOST}:{port}/api/2.0/mlflow/experiments/search?max_results=10"
    with urllib.request.urlopen(url, timeout=PATIENCE) as response:
        return {each["name"] for each in json.load(response)["experiments"]}


@pytest.mark.nightly
@pytest.mark.slow
def test_mlflow_ui_listens_locally_once_per_home_until_ctrl_c(tmp_path, fast_nvtrader):
    home, port = small_home(tmp_path / "home"), free_port()
    with subprocess.Popen(
        [NVTRADER, "mlflow", "--port", str(port)],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        servers = []
        try:
            assert f"http://{HOST}:{port} " in process.stdout.readline()
            assert experiments(port) >= {"nvtrader", "nvtrader trainings"}
            servers = psutil.Process(process.pid).children(recursive=True)
            listening = {each.laddr for server in servers for each in server.net_connections("tcp") if not each.raddr}
            assert {address.ip for address in listening if address.port == port} == {HOST}
            second = nvtrader(home, "mlflow", "--port", str(free_port()), command=fast_nvtrader)
            assert (second.returncode, f"http://{HOST}:{port}" in second.stderr) == (3, True)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)
    assert process.returncode == 0
    assert [server for server in servers if server.is_running()] == []
    require_free(port)
