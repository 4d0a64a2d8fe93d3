"""Decisions of people as an append-only file of JSON lines, `data/audit/rebalance_decisions.jsonl`."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
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
MAX_SHOWN = 60  # characters of a value that differs


@dataclass(frozen=True)
class RefusedLine:
    """Line of the file that is no decision of the audit."""

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
                    file.write(b"\n" * is_torn + b"".join(line + b"\n" for line in format_lines(rows)))
                    file.flush()
                    os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"the decisions {path} cannot be written: {error.strerror}") from error
    return len(rows)


def format_lines(rows: Sequence[DecisionRow]) -> dict[bytes, DecisionRow]:
    """Lines of the file without their ends, with the rows that they hold."""
    return {row.model_dump_json().encode(): row for row in rows}


def compare_lines(home: Home, audited: Mapping[bytes, DecisionRow]) -> tuple[set[str], list[RefusedLine]]:
    """Compare the file with the lines of the audit's decisions: ids of equal ones, and other lines with the reason.

    A line is refused if it is torn or otherwise invalid, has another schema version, differs from the audit, or repeats
    a decision.

    Raises:
        StorageError: if the file cannot be read.
    """
    intact: set[str] = set()
    refused: list[RefusedLine] = []
    lines = read_regular_file(decision_path(home)).removesuffix(b"\n").split(b"\n")
    for number, line in enumerate(lines if lines != [b""] else [], start=1):
        decision, reason = (audited[line].decision_id, "") if line in audited else _match(line, audited)
        if not reason and decision in intact:
            reason = f"the decision {decision} is in an earlier line"
        if reason:
            refused.append(RefusedLine(number, reason, line.decode("utf-8", "backslashreplace")))
        else:
            intact.add(decision)
    return intact, refused


def _match(line: bytes, audited: Mapping[bytes, DecisionRow]) -> tuple[str, str]:
    """Id of a line's decision, and how it differs from the audit's; the second is empty if it does not."""
    try:
        row = DecisionRow.model_validate_json(line)
    except ValidationError as error:
        return "", _describe(line, error)
    same = (other for other in audited.values() if other.decision_id == row.decision_id)
    return row.decision_id, _difference(row, next(same, None))


def _difference(row: DecisionRow, audited: DecisionRow | None) -> str:
    """Describe how a decision differs from the audit's; empty if it does not."""
    if audited is None:
        return f"the audit has no decision {row.decision_id}"
    pairs = ((name, getattr(row, name), getattr(audited, name)) for name in DecisionRow.model_fields)
    return "; ".join(
        f"{name} must be {_shorten(expected)} as in the audit, but is {_shorten(value)}"
        for name, value, expected in pairs
        if value != expected
    )


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


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
