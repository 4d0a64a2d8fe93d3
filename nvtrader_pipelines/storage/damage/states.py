"""State files: JSON of the warehouse that records the inputs it was built from."""

import json
from pathlib import Path
from typing import Any

from nvtrader_pipelines.storage.damage.file_problems import REPAIR, json_problem
from nvtrader_pipelines.storage.errors import DamagedFileError


def read_state(path: Path) -> dict[str, Any] | None:
    """Read a state file, or None if there is none yet.

    Raises:
        DamagedFileError: if it is empty or torn.
    """
    if not path.exists():
        return None
    if problem := json_problem(path):
        raise DamagedFileError(path, problem, REPAIR)
    return json.loads(path.read_bytes())
