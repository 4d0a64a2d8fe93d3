"""Decisions of people as an append-only file of JSON lines, `data/audit/rebalance_decisions.jsonl`."""

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.preferences.decisions import SCHEMA_VERSION, DecisionRow
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import file_lock, read_regular_file
from nvtrader_pipelines.storage.home import Home

_WHOLE = re.compile(  # line of this version, written to its end
    rb'^\{"schema_version":\d+,"decision_id":"([0-9a-f]{16})".*"outcome_known":(?:true|false)\}$', re.MULTILINE
)


@dataclass(frozen=True)
class RefusedLine:
    """Line of the file that is no decision."""

    line: int  # from 1
    reason: str
    text: str


def decision_path(home: Home) -> Path:
    """Path of the file."""
    return home.audit / "rebalance_decisions.jsonl"


def append_missing(home: Home, missing_rows: Callable[[set[str]], Sequence[DecisionRow]]) -> int:
    """Append decisions durably, given the ids that the file has; a torn last line stays, as a line of its own.

    Raises:
        StorageError: if the file cannot be read or written.
    """
    path = decision_path(home)
    try:
        with file_lock(path.with_name(f".{path.name}.lock")):
            content = read_regular_file(path)
            rows = missing_rows({match[1].decode() for match in _WHOLE.finditer(content)})
            if rows:
                is_torn = not content.endswith(b"\n") and bool(content)
                with path.open("ab") as file:
                    file.write(b"\n" * is_torn + b"".join(row.model_dump_json().encode() + b"\n" for row in rows))
                    file.flush()
                    os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"the decisions {path} cannot be written: {error.strerror}") from error
    return len(rows)


def read_decisions(home: Home) -> tuple[list[DecisionRow], list[RefusedLine]]:
    """Read the decisions in the sequence they were made, and the lines that are none, with the reason.

    A line is refused if it is torn or otherwise invalid, has another schema version, or repeats a decision.

    Raises:
        StorageError: if the file cannot be read.
    """
    rows: dict[str, DecisionRow] = {}
    refused: list[RefusedLine] = []
    lines = read_regular_file(decision_path(home)).removesuffix(b"\n").split(b"\n")
    for number, line in enumerate(lines if lines != [b""] else [], start=1):
        try:
            row = DecisionRow.model_validate_json(line)
        except ValidationError as error:
            refused.append(RefusedLine(number, _describe(line, error), line.decode("utf-8", "backslashreplace")))
            continue
        if row.decision_id in rows:
            reason = f"the decision {row.decision_id} is in an earlier line"
            refused.append(RefusedLine(number, reason, line.decode()))
        rows.setdefault(row.decision_id, row)
    return list(rows.values()), refused


def _describe(line: bytes, error: ValidationError) -> str:
    """Describe why a line is no decision."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return "the line is torn or not JSON"
    if not isinstance(document, dict):
        return "the line is no JSON object"
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        return f"the schema version must be {SCHEMA_VERSION}, but is {json.dumps(version)}"
    return explain(error, DecisionRow)
