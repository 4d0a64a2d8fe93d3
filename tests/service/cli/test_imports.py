"""Imports of commands: a light command must not wait for libraries it does not use."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import json, sys
from typer.testing import CliRunner
from nvtrader_pipelines.service.cli.app import app

modules = []
for commands in json.loads(sys.argv[1]):
    for command in commands:
        result = CliRunner().invoke(app, command.split())
        assert result.exit_code == 0, (command, result.output)
    modules.append(sorted({name.partition(".")[0] for name in sys.modules}))
print(json.dumps(modules))
"""
TRADING = {"torch", "stable_baselines3", "sb3_contrib", "gymnasium", "cvxpy", "skfolio", "highspy"}
JUDGING = {"arch", "statsmodels", "sklearn", "matplotlib", "mlflow", "exchange_calendars"}
NEVER = TRADING | JUDGING | {"dagster"}
TABLES = {"polars", "numba", "pyiceberg", "sqlalchemy", "duckdb", "pyarrow", "pandas"}
STAGES = {  # in this order in one process: a stage sees the imports of earlier ones
    "kill switch": (["--help", "halt", "resume", "trade --help"], NEVER | TABLES),
    "audit": (["plans"], NEVER | TABLES - {"polars"}),
    "tables and specs": (
        ["portfolio", "policies list", "experiments list", "runs list", "components", "schema"],
        NEVER,
    ),
}


def test_commands_import_no_unneeded_library(tmp_path):
    (tmp_path / "data" / "experiments").mkdir(parents=True)
    commands = json.dumps([commands for commands, _ in STAGES.values()])
    environment = {**os.environ, "NVTRADER_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, commands], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    imported = dict(zip(STAGES, map(set, json.loads(done.stdout)), strict=True))
    found = {stage: imported[stage] & unwanted for stage, (_, unwanted) in STAGES.items()}
    assert found == {stage: set() for stage in STAGES}
