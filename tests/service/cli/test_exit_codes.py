import json

import pytest
import typer
from typer.testing import CliRunner

from nvtrader_pipelines.runs.interruptions import RunHalted
from nvtrader_pipelines.service.cli.app import app
from nvtrader_pipelines.service.cli.exit_codes import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    USAGE,
    exit_on_error,
    requests_json,
)


def test_exit_of_a_command_keeps_its_code(capsys):
    with pytest.raises(typer.Exit) as ended, exit_on_error(verbose=False):
        raise typer.Exit(FAILED)
    assert ended.value.exit_code == FAILED
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("caps must sum to 1"), BAD_INPUT, "error: caps must sum to 1\n"),
        (
            PermissionError(13, "Permission denied", "/x/.home.tar.123.tmp"),
            BAD_INPUT,
            "error: /x/home.tar cannot be read or written: permission denied; check the path, its permissions and the "
            "free space\n",
        ),
        (OSError("no file"), BAD_INPUT, "error: no file\n"),
        (RunHalted("ann stopped trading"), INTERRUPTED, "ann stopped trading\n"),
        (RuntimeError("no\nluck"), FAILED, "error: unexpected RuntimeError: no luck; run again with --verbose\n"),
    ],
)
def test_error_is_printed_in_one_line_with_its_exit_code(capsys, error, code, line):
    with pytest.raises(SystemExit) as ended, exit_on_error(verbose=False):
        raise error
    assert ended.value.code == code
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["runs", "--json"], True),
        (["sql", "SELECT 1", "-f", "json"], True),
        (["sql", "SELECT 1", "--format=json"], True),
        (["sql", "SELECT 1", "--format", "csv"], False),
        (["sql", "json"], False),
        ([], False),
    ],
)
def test_requests_json_reads_both_spellings(arguments, expected):
    assert requests_json(arguments) is expected


@pytest.mark.parametrize("arguments", [["runs", "sho", "--json"], ["runs", "show", "--format", "json"]])
def test_wrong_usage_is_json_where_json_is_requested(arguments):
    found = CliRunner().invoke(app, arguments)
    assert (found.exit_code, found.stdout) == (USAGE, "")
    assert json.loads(found.stderr)["exit_code"] == USAGE


def test_bad_input_is_json_only_where_json_is_requested(tmp_path, monkeypatch):
    monkeypatch.setenv("NVTRADER_HOME", str(tmp_path / "typo"))
    found = CliRunner().invoke(app, ["runs", "--json"])
    error = json.loads(found.stderr)
    assert (found.exit_code, error["exit_code"], found.stdout) == (BAD_INPUT, BAD_INPUT, "")
    assert CliRunner().invoke(app, ["runs"]).stderr == f"error: {error['error']}\n"
