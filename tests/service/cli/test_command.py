"""Shared options of commands: the output they decide, exit codes and callbacks of groups."""

import json

import pytest
import typer
from typer.testing import CliRunner

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, USAGE
from nvtrader_pipelines.service.cli.output import Format

app = typer.Typer()


@command(app.callback, "app", invoke_without_command=True)
@command(app.command, "app rows --json", name="rows")
def rows(*, everything: bool = False, form: Format) -> None:
    typer.echo(json.dumps([form, everything]))


@command(app.command, "app page")
def page(*, as_json: bool) -> None:
    typer.echo(json.dumps(as_json))


@command(app.command, "app fail")
def fail() -> None:
    raise ValueError("bad input")


def run(*words):
    return CliRunner().invoke(app, words)


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["rows"], ["table", False]),
        (["rows", "--format", "csv", "--everything"], ["csv", True]),
        (["rows", "--format", "csv", "--json"], ["json", False]),
        (["--everything"], ["table", True]),
        (["page"], False),
        (["page", "--json"], True),
        (["page", "-f", "json"], True),
    ],
)
def test_output_follows_format_and_json(words, output):
    assert json.loads(run(*words).stdout) == output


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["fail"], BAD_INPUT),
        (["fail", "--json"], USAGE),
        (["page", "--format", "csv"], USAGE),
        (["--json", "page"], USAGE),
    ],
)
def test_failing_command_exits_with_its_code(words, code):
    assert run(*words).exit_code == code


def test_trace_is_shown_with_verbose_only():
    assert "Traceback" not in run("fail").stderr
    assert "Traceback" in run("fail", "--verbose").stderr


def test_callback_of_a_group_is_left_to_its_command():
    assert run("page").stdout == "false\n"
