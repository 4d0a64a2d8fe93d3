"""Write the indexes of commands and tools, by which help and lists are quick: python -m scripts.index_commands."""

import json
from collections.abc import Mapping

from pydantic import TypeAdapter

from nvtrader_pipelines.service.cli.lazy_group import INDEX, import_command
from nvtrader_pipelines.service.tools.registry import INDEX as TOOL_INDEX
from nvtrader_pipelines.service.tools.registry import TOOLS

# panels of the help: every command in one, in the order people use them, with its module
PANELS: Mapping[str, Mapping[str, str]] = {
    "Research": {
        "ingest": "home_commands",
        "components": "home_commands",
        "schema": "home_commands",
        "experiments": "experiment_commands",
        "train": "experiment_commands",
        "apps": "experiment_commands",
        "materialize": "experiment_commands",
        "alphas": "alpha_commands",
        "workflows": "workflow_commands",
        "worlds": "world_commands",
        "mlflow": "home_commands",
        "research": "research_commands",
    },
    "Results": {
        "runs": "run_commands",
        "backtest": "run_commands",
        "guards": "guard_commands",
        "scoreboard": "scoreboard_commands",
        "report": "home_commands",
        "corpora": "corpus_commands",
        "tables": "home_commands",
        "sql": "home_commands",
    },
    "Trading": {
        "policies": "policy_commands",
        "trade": "portfolio_commands",
        "portfolio": "portfolio_commands",
        "plans": "plan_commands",
        "bots": "bot_commands",
        "preferences": "preference_commands",
        "halt": "home_commands",
        "resume": "home_commands",
    },
    "Home": {
        "init": "home_commands",
        "status": "home_commands",
        "ui": "home_commands",
        "serve": "serve_command",
        "mcp": "mcp_command",
        "doctor": "home_commands",
        "notify": "home_commands",
        "backup": "home_commands",
        "migrate": "home_commands",
        "restore": "home_commands",
    },
}


def index() -> str:
    """Index as JSON: panel, module and first paragraph of the help of every command, in the order of the panels."""
    entries = {}
    for panel, modules in PANELS.items():
        for name, module in modules.items():
            command = import_command(module, name)
            text = command.help if hasattr(command, "commands") else command.help.partition("\n\n")[0]
            entries[name] = {"panel": panel, "module": module, "help": text}
    return json.dumps(entries, indent=1) + "\n"


def index_tools() -> str:
    """Index as JSON: text, and JSON Schemas of arguments and result, of every tool."""
    entries = {
        name: {
            "text": tool.operation.text,
            "arguments": TypeAdapter(tool.arguments).json_schema(),
            "result": TypeAdapter(tool.result).json_schema(),
        }
        for name, tool in TOOLS.items()
    }
    lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())  # a tool a line
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    TOOL_INDEX.write_text(index_tools())
    INDEX.write_text(index())
