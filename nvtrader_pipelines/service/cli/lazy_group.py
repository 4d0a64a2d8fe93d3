"""Root of the command line: its help comes from an index, and a command is imported when it is called."""

import json
from collections.abc import Iterator, Mapping
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from nvtrader_pipelines.service.cli.exit_codes import JsonErrorGroup

INDEX = Path(__file__).with_name("commands.json")  # panel, module and help by command, of scripts/index_commands.py


class LazyCommands(Mapping[str, Any]):
    """Commands of the index by name, in the order of the help; one is imported when it is looked up."""

    def __init__(self) -> None:
        """Read the index."""
        self.index: Mapping[str, Mapping[str, str]] = json.loads(INDEX.read_text())
        self._imported: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Import a command, once."""
        if name not in self._imported:
            self._imported[name] = import_command(self.index[name]["module"], name)
        return self._imported[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self.index)

    def __len__(self) -> int:
        """Count the commands."""
        return len(self.index)


class LazyGroup(JsonErrorGroup):
    """Group that lists its commands without importing them."""

    def __init__(self, **options: Any) -> None:
        """Take the commands of the index."""
        self._lazy = LazyCommands()
        super().__init__(**{**options, "commands": self._lazy})

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help from the index."""
        listed = copy(self)
        listed.commands = {
            name: TyperCommand(name, help=entry["help"], rich_help_panel=entry["panel"])
            for name, entry in self._lazy.index.items()
        }
        super(LazyGroup, listed).format_help(ctx, formatter)


def import_command(module: str, name: str) -> Any:
    """Import a command of the root, or a group of them, from its module here."""
    root = typer.Typer(add_completion=False)
    root.callback()(lambda: None)
    root.add_typer(import_module(f"{__package__}.{module}").app)
    return typer.main.get_command(root).commands[name]  # pyright: ignore[reportAttributeAccessIssue] - a group
