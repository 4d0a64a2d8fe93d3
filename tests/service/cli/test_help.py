"""Rules that every command of the command line keeps: examples, and one spelling of the output format."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from nvtrader_pipelines.service.cli.app import app
from nvtrader_pipelines.service.cli.lazy_group import INDEX
from nvtrader_pipelines.service.cli.options import EPILOG
from scripts.index_commands import PANELS, index

ROOT = typer.main.get_command(app)
WITHOUT_FORMAT = {
    ("ui",),
    ("serve",),
    ("mcp",),
    ("mlflow",),
    ("schema",),
}  # servers; a document that is JSON in any case
GROUPS_ONLY = {(), ("experiments",), ("guards",), ("preferences",), ("research",)}  # print nothing but their help


def walk(command: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every group and command with its path."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from walk(child, (*path, name))


COMMANDS = dict(walk())


def examples(command: Any) -> list[list[str]]:
    """Words of each example of a command's help, without the program's name."""
    lines = [line.strip() for line in (command.epilog or "").splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("nvtrader ")]


def parse(words: list[str]) -> tuple[str, ...]:
    """Parse a command line without running it, and return the path of its command."""
    command, context, rest, path = ROOT, None, words, ()
    while True:
        context = command.make_context(path[-1] if path else "nvtrader", list(rest), parent=context)
        rest = [*getattr(context, "_protected_args", []), *context.args]
        children = getattr(command, "commands", {})
        if not (children and rest):
            return path
        command, path, rest = children[rest[0]], (*path, rest[0]), rest[1:]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_one_to_three_examples_that_parse(path):
    found = examples(COMMANDS[path])
    assert 1 <= len(found) <= 3
    assert all(parse(words)[: len(path)] == path for words in found)
    assert COMMANDS[path].epilog.endswith(EPILOG)


@pytest.mark.parametrize("path", sorted(COMMANDS.keys() - WITHOUT_FORMAT - GROUPS_ONLY), ids=" ".join)
def test_command_takes_format_and_json_in_one_spelling(path):
    options = {name: option for option in COMMANDS[path].params for name in option.opts}
    assert {"--format", "-f", "--json"} <= options.keys()
    assert options["--format"] is options["-f"]
    assert options["--format"].help in ("table, csv or json.", "table or json.")  # the two shared declarations


def test_help_lists_every_command_in_one_panel_in_order():
    assert INDEX.read_text() == index()
    listed = [name for names in PANELS.values() for name in names]
    assert list(ROOT.commands) == listed
    shown = CliRunner().invoke(app, ["--help"]).stdout
    titles = re.findall(r"^╭─ (\w+) ─", shown, flags=re.MULTILINE)
    assert titles == ["Options", *PANELS]
    assert re.findall(r"^│ ([a-z]+) ", shown, flags=re.MULTILINE) == listed


def test_example_with_an_unknown_option_does_not_parse():
    with pytest.raises(typer.TyperException):
        parse(["runs", "list", "--jsn"])
