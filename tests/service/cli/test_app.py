"""Commands as typed: names, options, exit codes and one-line errors."""

import csv
import io
import json
import os
import pty
import re
import select
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nvtrader_pipelines.service.cli.app import app
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, FAILED, USAGE
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.views.publishing import publish
from tests.homes import NVTRADER, environment, nvtrader, small_home
from tests.service.cli.error_lines import is_one_line_error

COMMANDS = (
    *(
        "init",
        "materialize",
        "ui",
        "serve",
        "mlflow",
        "sql",
        "tables",
        "runs",
        "experiments",
        "components",
        "schema",
        "doctor",
        "report",
        "scoreboard",
    ),
    *("scoreboard", "policies", "trade", "portfolio", "plans", "halt", "resume"),
)
EXPERIMENT_COMMANDS = [
    ("experiments", name) for name in ("new", "list", "diff", "run", "validate", "show", "archive", "unarchive")
]
RUN_COMMANDS = [("runs", name) for name in ("list", "show", "compare", "replay", "forward", "delete")]
PLAN_COMMANDS = [("plans", name) for name in ("list", "show", "approve", "override", "reject")]
TOP_COMMANDS = [(name,) for name in COMMANDS if name != "experiments"]
QUICKSTART = " ".join((Path(__file__).parents[3] / "docs" / "quickstart.md").read_text().split())
EXIT_CODES = re.search(r"Exit codes: 0 done, 1 .*, 2 .*, 3 .*, 130 interrupted\.", QUICKSTART)[0]
COUNT = "SELECT policy, count(*) AS n FROM rl.trajectories GROUP BY policy ORDER BY policy"


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """An empty home, named in this process's environment."""
    monkeypatch.setenv("NVTRADER_HOME", str(tmp_path))
    return tmp_path


def test_version_is_that_of_the_installed_package():
    found = CliRunner().invoke(app, ["--version"])
    assert (found.exit_code, found.output) == (0, f"nvtrader {version('nvtrader-pipelines')}\n")


def test_help_without_a_command_lists_all_commands():
    found = CliRunner().invoke(app, [])
    assert found.exit_code == USAGE
    assert all(command in found.output for command in COMMANDS)


@pytest.mark.parametrize("group", ["experiments", "runs", "plans"])
def test_help_of_a_group_lists_its_commands(group):
    found = CliRunner().invoke(app, [group, "--help"])
    assert found.exit_code == 0
    assert all(
        name in found.output for above, name in [*EXPERIMENT_COMMANDS, *RUN_COMMANDS, *PLAN_COMMANDS] if above == group
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", [*TOP_COMMANDS, *EXPERIMENT_COMMANDS, *RUN_COMMANDS, *PLAN_COMMANDS], ids=" ".join)
def test_help_of_every_command_holds_exit_codes(command):
    found = CliRunner().invoke(app, [*command, "--help"], terminal_width=200)
    assert found.exit_code == 0
    assert EXIT_CODES.replace("`", "") in " ".join(found.output.split())
    assert "--verbose" in found.output


@pytest.mark.parametrize(
    "arguments",
    [
        *[("nonsense",), ("materialize", "--nonsense"), ("sql", "--format", "xml"), ("ui", "--port", "0")],
        *[("sql", "--fromat", "json"), ("sql", "--jsn"), ("sql", "SELECT 1", "--format=a b")],
    ],
)
def test_wrong_usage_exits_with_2(arguments):
    assert CliRunner().invoke(app, list(arguments)).exit_code == USAGE


def test_sql_writes_a_table_csv_or_json(invoke):
    outputs = {form: invoke("sql", COUNT, "--format", form) for form in ("table", "csv", "json")}
    assert {form: found.exit_code for form, found in outputs.items()} == dict.fromkeys(outputs, 0)
    assert {found.stderr for found in outputs.values()} == {""}
    rows = json.loads(outputs["json"].stdout)
    assert [row["policy"] for row in rows] == [
        *("buy_and_hold", "equal_weight", "mean_cvar", "minimum_variance"),
        *("tiny", "tiny/seed-0", "tiny/seed-1", "tiny/seed-2"),
    ]
    assert [{**row, "n": str(row["n"])} for row in rows] == list(csv.DictReader(io.StringIO(outputs["csv"].stdout)))
    assert outputs["table"].stdout.split()[:2] == ["policy", "n"]
    assert "8 rows" in outputs["table"].stdout


def test_the_action_logs_are_lists_in_every_format(invoke):
    query = "SELECT symbols, executed_weights FROM rl.action_logs LIMIT 1"
    (row,) = json.loads(invoke("sql", query, "-f", "json").stdout)
    assert row["symbols"] == ["AAA", "BBB", "CCC", "cash"]
    (line,) = csv.DictReader(io.StringIO(invoke("sql", query, "-f", "csv").stdout))
    assert line["symbols"] == "AAA|BBB|CCC|cash"
    assert [float(weight) for weight in line["executed_weights"].split("|")] == row["executed_weights"]


@pytest.mark.parametrize("form", ["table", "csv", "json"])
@pytest.mark.parametrize(
    "query",
    ["SELECT {'a': 1} AS s, [[1, 2], [3]] AS l, NULL AS n", "SELECT 1 WHERE false", "SELECT sum(1), DATE '2024-01-02'"],
)
def test_sql_writes_nested_empty_and_null_results(invoke, query, form):
    assert invoke("sql", query, "-f", form).exit_code == 0


@pytest.mark.parametrize(
    ("form", "start"), [("table", " name"), ("csv", "name,n_rows,"), ("json", '[\n {\n  "name": "bronze.')]
)
def test_tables_are_listed_with_their_rows(invoke, form, start):
    found = invoke("tables", "--format", form)
    assert found.exit_code == 0
    assert found.stdout.startswith(start)
    assert "gold.market_panel" in found.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", [["report", "--output"], ["schema", "--output"], ["backup"]])
def test_output_below_a_file_or_a_missing_folder_is_refused(empty, command):
    (empty / "file").write_text("")
    for path, words in ((empty / "file" / "out", "file is a file"), (empty / "nowhere" / "out", "nowhere is missing")):
        found = CliRunner().invoke(app, [*command, str(path)])
        assert found.exit_code == BAD_INPUT
        assert words in found.stderr
        assert is_one_line_error(found.stderr)
    assert [path.name for path in empty.iterdir()] == ["file"]


def test_report_refuses_a_folder_or_a_device(empty):
    (empty / "file").write_text("")
    os.mkfifo(empty / "pipe")  # stands for a device, which a report would replace
    for path, words in ((empty, "is a folder"), (empty / "pipe", "is a device")):
        found = CliRunner().invoke(app, ["report", "--output", str(path)])
        assert found.exit_code == BAD_INPUT
        assert words in found.stderr
        assert is_one_line_error(found.stderr)
    assert (empty / "pipe").is_fifo()
    assert sorted(path.name for path in empty.iterdir()) == ["file", "pipe"]


def test_doctor_of_built_home_finds_no_problem(built_home, invoke):
    found = invoke("doctor", "--json")
    checks = {each["check"]: each for each in json.loads(found.stdout)}
    assert found.exit_code == (FAILED if any(each["problem"] for each in checks.values()) else 0)
    assert checks["home"]["result"] == str(built_home.root)
    assert checks["dagster"]["result"].startswith("1.")
    assert {checks[name]["problem"] for name in ("experiments", "landing", "views", "torch")} == {""}


def test_doctor_of_empty_home_exits_with_1(empty):
    found = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "80"})
    assert found.exit_code == FAILED
    assert "experiments, landing: missing: create it" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("materialize",), "there is no experiment in"),
        (("materialize", "huge"), "there is no experiment in"),
        (("sql", "SELECT 1"), "run `nvtrader materialize` first"),
        (("sql", "--", "--a comment\nSELECT 1"), "run `nvtrader materialize` first"),
        (("sql",), "run `nvtrader materialize` first"),
    ],
)
def test_command_in_empty_home_exits_with_3_and_next_command(empty, arguments, words):
    found = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300"})
    assert found.exit_code == BAD_INPUT
    assert words in found.stderr
    assert is_one_line_error(found.stderr)


@pytest.mark.parametrize(
    "command",
    [
        *[("materialize",), ("ui",), ("sql", "SELECT 1"), ("tables",), ("runs",), ("doctor",)],
        *[("trade",), ("portfolio",), ("plans",), ("plans", "approve", "x"), ("halt",), ("resume",)],
        *[("experiments", "list"), ("experiments", "new", "x"), ("runs", "show", "x"), ("runs", "replay", "x")],
    ],
    ids=" ".join,
)
def test_missing_home_exits_with_3_and_is_not_created(tmp_path, monkeypatch, command):
    monkeypatch.setenv("NVTRADER_HOME", str(tmp_path / "typo"))
    found = CliRunner().invoke(app, list(command))
    assert found.exit_code == BAD_INPUT
    assert "NVTRADER_HOME must name a folder" in found.stderr
    assert not (tmp_path / "typo").exists()


def test_command_outside_a_home_exits_with_3_and_names_init(tmp_path, monkeypatch):
    monkeypatch.setattr(Home, "find_fixed", lambda: None)  # as an installed wheel finds no checkout
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["halt"])
    assert (found.exit_code, "nvtrader init DIR" in found.stderr) == (BAD_INPUT, True)
    assert list(tmp_path.iterdir()) == []


def test_init_creates_a_home_that_its_next_command_enters(tmp_path, monkeypatch):
    monkeypatch.setattr(Home, "find_fixed", lambda: None)
    monkeypatch.chdir(tmp_path)
    created = CliRunner().invoke(app, ["init", "new"])
    assert (created.exit_code, created.stdout.splitlines()[1]) == (0, f"  cd {tmp_path / 'new'}")
    monkeypatch.chdir(tmp_path / "new")
    assert CliRunner().invoke(app, ["experiments", "new", "mine"]).exit_code == 0
    again = CliRunner().invoke(app, ["init", "."])
    assert (again.exit_code, is_one_line_error(again.stderr)) == (BAD_INPUT, True)


@pytest.mark.parametrize("query", ["SELECT nix", "SELEC 1", "SELECT * FROM nix", "SELECT 'x'::INT"])
def test_failing_query_exits_with_3_and_reason(invoke, query):
    found = invoke("sql", query)
    assert found.exit_code == BAD_INPUT
    assert found.stderr.startswith("error: the query failed: ")
    assert "Traceback" not in found.stderr
    assert found.stdout == ""


def test_verbose_shows_the_trace(invoke):
    found = invoke("sql", "SELECT nix", "--verbose")
    assert found.exit_code == BAD_INPUT
    assert "Traceback" in found.stderr
    assert "BinderException" in found.stderr


@pytest.mark.slow
def test_invalid_document_exits_with_3_and_failing_step_with_1(tmp_path, command, fast_nvtrader):
    home = small_home(tmp_path / "home")
    home.market_file.write_text("sources:\n  - kind: landng\n")
    found = command(home)("materialize", "--json")
    assert found.exit_code == BAD_INPUT
    assert json.loads(found.stderr)["error"].startswith("market.yaml is not a valid market")

    home.market_file.write_text("sources:\n  - kind: landing\n")
    home.warehouse.mkdir(exist_ok=True)
    home.deliveries.write_text("a file where a folder must be")
    found = nvtrader(home, "materialize", "--json", "--verbose", command=fast_nvtrader)
    assert found.returncode == FAILED
    assert found.stdout == ""
    error = json.loads(found.stderr.splitlines()[-1])
    assert error["exit_code"] == FAILED
    assert error["error"].startswith("market: bronze__bars failed: FileExistsError")
    assert "in store_copies" in found.stderr  # the trace of the step


def test_materialize_prints_results_paths_and_next_commands(built_home):
    printed = (built_home.root.parent / "built-home.txt").read_text()
    for column in ("net Sharpe", "Sharpe 95 %", "less best baseline", "CAGR", "max DD", "turnover/y", "cost/y"):
        assert column in printed
    for policy in ("tiny", "equal_weight", "buy_and_hold", "minimum_variance", "mean_cvar"):
        assert f"\n {policy} " in printed
    assert str(built_home.duckdb_file) in printed
    assert len(printed.split("try next\n")[1].splitlines()) == 3


def test_statements_from_a_pipe_run_in_order(built_home, fast_nvtrader):
    typed = "SELECT 1 AS one;\nSELECT\n 2 AS two;\n.tables\nSELECT 3 AS three"
    found = nvtrader(built_home, "sql", "--format", "csv", command=fast_nvtrader, input=typed)
    assert found.returncode == 0
    assert found.stdout.startswith("one\n1\ntwo\n2\nname\nbronze.bars\n")
    assert found.stdout.endswith("three\n3\n")
    assert found.stderr == ""


def test_failing_statement_from_a_pipe_exits_with_3(invoke):
    found = invoke("sql", "-f", "csv", input="SELECT 1 AS one;\nSELECT nix;\nSELECT 2 AS two;\n")
    assert found.exit_code == BAD_INPUT
    assert found.stdout == "one\n1\n"
    assert found.stderr.startswith("error: the query failed")


def read_until(terminal: int, text: str) -> str:
    """Read from the terminal until it shows `text`."""
    shown, end = "", time.monotonic() + 120
    while text not in shown:
        assert time.monotonic() < end, shown
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 65536).decode(errors="replace")
    return shown


@pytest.mark.slow
def test_sql_shell_survives_errors_and_ends_on_quit(tmp_path):
    home = small_home(tmp_path / "home")  # the shell writes its history here
    publish(Store(home))
    controller, terminal = pty.openpty()
    settings = {**environment(home), "TERM": "dumb"}
    try:
        with subprocess.Popen(
            [NVTRADER, "sql"], env=settings, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
        ) as process:
            read_until(controller, "nvtrader>")
            os.write(controller, b"SELECT 6 * 7 AS answer;\r")
            assert "42" in read_until(controller, "1 row")
            os.write(controller, b"SELECT nix;\r")
            read_until(controller, "error: the query failed")
            os.write(controller, b"SELECT half\x03")  # Ctrl-C drops the statement
            os.write(controller, b"SELECT 'again';\r")
            read_until(controller, "1 row")
            os.write(controller, b".quit\r")
            assert process.wait(120) == 0
    finally:
        os.close(controller)
        os.close(terminal)
    assert "SELECT 6 * 7 AS answer;" in (home.warehouse / ".sql_history").read_text()
