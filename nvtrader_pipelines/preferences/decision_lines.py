"""Lines of the decisions' file, and how they differ from the audit."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.preferences.decisions import SCHEMA_VERSION, DecisionRow

MAX_SHOWN = 60  # characters of a value that differs


@dataclass(frozen=True)
class RefusedLine:
    """Line of the file that is no decision of the audit."""

    line: int  # from 1
    reason: str
    text: str


def format_lines(rows: Sequence[DecisionRow]) -> dict[bytes, DecisionRow]:
    """Lines of the file without their ends, with the rows that they hold."""
    return {row.model_dump_json().encode(): row for row in rows}


def compare_lines(lines: Iterable[bytes], audited: Sequence[DecisionRow]) -> tuple[set[str], list[RefusedLine]]:
    """Compare lines with the decisions of the audit; return the ids of equal ones, and the others with the reason.

    A line is refused if it is torn or otherwise invalid, has another schema version, differs from the audit, or repeats
    a decision.
    """
    rows = format_lines(audited)
    by_id = {row.decision_id: row for row in audited}
    intact: set[str] = set()
    refused: list[RefusedLine] = []
    for number, line in enumerate(lines, start=1):
        decision, reason = (rows[line].decision_id, "") if line in rows else _match(line, by_id)
        if not reason and decision in intact:
            reason = f"the decision {decision} is in an earlier line"
        if reason:
            refused.append(RefusedLine(number, reason, line.decode("utf-8", "backslashreplace")))
        else:
            intact.add(decision)
    return intact, refused


def _match(line: bytes, by_id: Mapping[str, DecisionRow]) -> tuple[str, str]:
    """Id of a line's decision, and how it differs from the audit's; the second is empty if it does not."""
    try:
        row = DecisionRow.model_validate_json(line)
    except ValidationError as error:
        return "", _describe(line, error)
    return row.decision_id, _difference(row, by_id.get(row.decision_id))


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
