"""Answers of a language model in a search session: a proposal, and a paragraph on its result."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, Strict

from nvtrader_pipelines.research.journal import Knobs
from nvtrader_pipelines.research.proposal_bounds import ConfigDelta
from nvtrader_pipelines.research.space import SearchSpace

MAX_REASON, MAX_PARAGRAPH = 300, 2000  # characters
SIGNS = "+-\N{MINUS SIGN}"
Number = Annotated[FiniteFloat, Strict()]  # neither text nor a boolean
_FIGURE = re.compile(r"(?:(?<![\w.])[-+\N{MINUS SIGN}])?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")


def on_one_line(text: str) -> str:
    """Replace control characters by spaces."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _reason(text: str) -> str:
    """Cut a reason to its length, on one line."""
    line = on_one_line(text)
    if not line:
        raise ValueError("must say why, but is empty")
    return line if len(line) <= MAX_REASON else f"{line[: MAX_REASON - 1]}…"


class ProposalAnswer(BaseModel):
    """Proposal of a model; other fields are not read."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    changes: dict[str, Number | None]  # by knob; those left out or null keep the base's value
    reason: Annotated[str, Strict(), AfterValidator(_reason)]  # one sentence
    expects: Number | None = None  # Sharpe ratio on validation
    cites_goal: Annotated[bool, Strict()] = False  # whether the goal decided


class SummaryAnswer(BaseModel):
    """Paragraph of a model on a session; other fields are not read."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    paragraph: Annotated[
        str, Strict(), Field(min_length=1, max_length=MAX_PARAGRAPH), AfterValidator(on_one_line)
    ]  # 3 to 6 sentences


def proposal_schema(space: SearchSpace) -> dict[str, Any]:
    """JSON Schema of a proposal in a space, with all fields required, as endpoints demand of a strict schema."""
    number = {"type": ["number", "null"]}
    knobs = {knob.name: number for knob in space.knobs}
    changes = {"type": "object", "properties": knobs, "required": list(knobs), "additionalProperties": False}
    fields = {"changes": changes, "reason": {"type": "string"}, "expects": number, "cites_goal": {"type": "boolean"}}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def take_answer(answer: ProposalAnswer, space: SearchSpace) -> Knobs:
    """Return the proposal of an answer, a value for every knob, which may be out of bounds.

    Raises:
        DeltaRefused: if the answer names an unknown knob, or a fraction for a whole-number knob.
    """
    changes = {name: value for name, value in answer.changes.items() if value is not None}
    delta = ConfigDelta.parse(changes, space.knobs)
    beyond = {clip.knob: clip.proposed for clip in delta.clips}
    return {**space.base_values, **delta.values, **beyond}


def foreign_figures(paragraph: str, report: str) -> list[str]:
    """Figures of a paragraph that a report lacks; one without a sign may be the size of one with a minus."""
    figures = {_value(text) for text in _FIGURE.findall(report)}
    sizes = figures | {-value for value in figures if value < 0.0}
    return [text for text in _FIGURE.findall(paragraph) if _value(text) not in (figures if text[0] in SIGNS else sizes)]


def _value(text: str) -> float:
    return float(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))
