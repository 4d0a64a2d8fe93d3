"""Numbers with an origin, by topic."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "golden"


def golden(topic: str) -> dict[str, Any]:
    """The whole file of a topic."""
    return json.loads((FOLDER / topic / f"{topic}.json").read_text(encoding="utf-8"))


def cases(topic: str, *prefixes: str) -> dict[str, dict[str, Any]]:
    """The cases whose names begin so, by name; all without prefixes."""
    return {case["id"]: case for case in golden(topic)["cases"] if case["id"].startswith(prefixes or ("",))}
