"""Write the index of the commands, from which the help of `nvtrader` is shown: python -m scripts.index_commands."""

import json
from collections.abc import Mapping

from nvtrader_pipelines.service.cli.lazy_group import INDEX, import_command

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
        "mlflow": "home_commands",
        "research": "research_commands",
    },
    "Results": {
        "runs": "run_commands",
        "backtest": "run_commands",
        "guards": "guard_commands",
        "scoreboard": "scoreboard_commands",
        "report": "home_commands",
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
        "doctor": "home_commands",
        "notify": "home_commands",
        "backup": "home_commands",
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


if __name__ == "__main__":
    INDEX.write_text(index())
