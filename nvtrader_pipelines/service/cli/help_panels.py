"""Panels of the help: every command in one of them, in the order people use them, with its module."""

from collections.abc import Mapping

PANELS: Mapping[str, Mapping[str, str]] = {
    "Research": {
        "ingest": "home_commands",
        "components": "home_commands",
        "schema": "home_commands",
        "experiments": "experiment_commands",
        "train": "experiment_commands",
        "materialize": "experiment_commands",
        "mlflow": "home_commands",
        "research": "research_commands",
    },
    "Results": {
        "runs": "run_commands",
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
