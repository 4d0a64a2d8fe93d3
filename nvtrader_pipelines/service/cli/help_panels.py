"""Panels of the help: every command in one of them, in the order people use them."""

from collections.abc import Mapping, Sequence
from typing import Any

from nvtrader_pipelines.service.cli.exit_codes import JsonErrorGroup

PANELS: Mapping[str, Sequence[str]] = {
    "Research": ("ingest", "components", "schema", "experiments", "train", "materialize", "mlflow", "research"),
    "Results": ("runs", "guards", "scoreboard", "report", "tables", "sql"),
    "Trading": ("policies", "trade", "portfolio", "plans", "preferences", "halt", "resume"),
    "Home": ("init", "status", "ui", "serve", "doctor", "notify", "backup", "restore"),
}


class PanelGroup(JsonErrorGroup):
    """Group whose commands are listed by panel."""

    def __init__(self, *, commands: Mapping[str, Any], **options: Any) -> None:
        """Assign every command to its panel.

        Raises:
            KeyError: if a command is in no panel.
        """
        panels = {name: panel for panel, names in PANELS.items() for name in names}
        for name, command in commands.items():
            command.rich_help_panel = panels[name]
        super().__init__(commands={name: commands[name] for name in panels}, **options)
