"""Imports of commands: a light command must not wait for libraries it does not use."""

import json
import os
import subprocess
import sys

import pytest

from nvtrader_pipelines.storage.views.publishing import publish

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
    modules.append(sorted({part for name in sys.modules for part in (name, name.partition(".")[0])}))
print(json.dumps(modules))
"""
TRADING = {"torch", "stable_baselines3", "sb3_contrib", "gymnasium", "cvxpy", "skfolio", "highspy"}
JUDGING = {"arch", "statsmodels", "sklearn", "matplotlib", "mlflow", "exchange_calendars"}
NEVER = TRADING | JUDGING | {"dagster", "opentelemetry"}
TABLES = {"polars", "numba", "pyiceberg", "sqlalchemy", "duckdb", "pyarrow", "pandas"}
SPEC = "nvtrader_pipelines.experiments.spec"
LISTS = [  # on a home with runs and a scoreboard; those of one process see the imports of earlier ones
    {"experiments list": {"numba", "pandas", "duckdb", "pyarrow", "pyiceberg", "nvtrader_pipelines.experiments.plan"}},
    {
        "runs": {"numba", "pandas", "duckdb", "pyarrow.dataset", SPEC},
        "scoreboard": {"numba", "pandas", "duckdb", "pyarrow.dataset", SPEC},
        "policies list": {"numba", "pandas", "duckdb", "pyarrow.dataset", "nvtrader_pipelines.experiments.plan"},
        "portfolio": {"numba", "pandas", "duckdb", "pyarrow.dataset"},
        "status": {"numba", "pandas", "pyarrow.dataset", "nvtrader_pipelines.experiments.plan"},
    },
]
STAGES = {  # in this order in one process: a stage sees the imports of earlier ones
    "help": (["--help"], NEVER | TABLES | {"pydantic", "numpy", "yaml"}),
    "kill switch": (["halt", "resume", "trade --help"], NEVER | TABLES),
    "audit": (["plans"], NEVER | TABLES - {"polars"}),
    "tables and specs": (
        [
            "portfolio",
            "policies list",
            "experiments list",
            "runs list",
            "components",
            "schema",
            "research space",
            "research sessions",
        ],
        NEVER,
    ),
}


def imported_modules(home, stages):
    """Modules imported after each stage of commands, which run one after the other in a new process."""
    environment = {**os.environ, "NVTRADER_HOME": str(home)}
    command = [sys.executable, "-c", SCRIPT, json.dumps(stages)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return list(map(set, json.loads(done.stdout.splitlines()[-1])))


def test_commands_import_no_unneeded_library(tmp_path):
    (tmp_path / "data" / "experiments").mkdir(parents=True)
    stages = imported_modules(tmp_path, [commands for commands, _ in STAGES.values()])
    imported = dict(zip(STAGES, stages, strict=True))
    found = {stage: imported[stage] & unwanted for stage, (_, unwanted) in STAGES.items()}
    assert found == {stage: set() for stage in STAGES}


def test_query_imports_duckdb_and_polars_alone(store, home):
    store.tables.describe_all()  # creates the catalog
    publish(store)
    (imported,) = imported_modules(home.root, [["sql VALUES(1)"]])
    assert imported & (NEVER | TABLES | {"prompt_toolkit"}) == {"duckdb", "polars", "pyarrow"}


@pytest.mark.parametrize("lists", LISTS, ids=["experiments", "others"])
def test_lists_of_built_home_import_no_unneeded_library(built_home, lists):
    imported = imported_modules(built_home.root, [[command] for command in lists])
    found = {command: modules & (NEVER | lists[command]) for command, modules in zip(lists, imported, strict=True)}
    assert found == {command: set() for command in lists}
