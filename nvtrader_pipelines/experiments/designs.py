"""Experiment designs: a family of ways to turn folds and seeds into one result."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, JsonValue

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.evaluation.splits import MIN_TEST_SESSIONS, Fold

UNTOUCHABLE = ("name", "description", "design")  # what an ablation's variants differ in by themselves
_OTHER = re.compile(r"[^a-z0-9]+")


class Design(Component):
    """How folds and seeds become one result."""

    def folds(self, folds: Sequence[Fold]) -> Sequence[Fold]:
        """Those of the splitter's folds that are run."""
        return folds


class BasicDesign(Design):
    """One training window and one test window, the splitter's last; seeds' weights are averaged."""

    validation_sessions: ClassVar[int] = 0

    kind: Literal["basic"] = "basic"

    def folds(self, folds: Sequence[Fold]) -> Sequence[Fold]:
        """The last fold alone."""
        return folds[-1:]


class WalkForwardDesign(Design):
    """Every fold of the splitter, one after the other; seeds' weights are averaged (Pardo 1992)."""

    validation_sessions: ClassVar[int] = 0

    kind: Literal["walk_forward"] = "walk_forward"


class BestOfNDesign(Design):
    """Every fold, in each the seed with the best net Sharpe ratio on sessions held out of its training.

    The test window is never looked at, so what is chosen is judged on sessions that played no part in choosing it.
    """

    kind: Literal["best_of_n"] = "best_of_n"
    validation_sessions: Annotated[int, Field(ge=MIN_TEST_SESSIONS, le=1260)] = 252  # last ones of each training window


class AblationDesign(Design):
    """One experiment per value of one field, all else equal; runs nothing itself.

    `field` is a dotted path such as `agent.gamma` or `environment.rewards.0.weight`; a path that ends in `kind`
    replaces the component whole.
    """

    validation_sessions: ClassVar[int] = 0

    kind: Literal["ablation"] = "ablation"
    field: str = "environment.vol_penalty"
    values: Annotated[tuple[JsonValue, ...], Field(min_length=2)] = (0.0, 0.5)

    def documents(self, document: dict[str, Any]) -> list[dict[str, Any]]:
        """The experiment's document once per value, with a name of its own and no ablation.

        Raises:
            ValueError: if the document has no such field, or the field is not one to vary.
        """
        parts = self.field.split(".")
        if parts[0] in UNTOUCHABLE:
            raise ValueError(f"design.field: an ablation cannot vary {parts[0]!r}; name another field")
        base = {**document, "design": {"kind": "walk_forward"}}
        return [
            {**replaced(base, parts, value, "")} | {"name": f"{document['name']}-{_leaf(parts)}-{slug(value)}"}
            for value in self.values
        ]


ExperimentDesign = Annotated[
    BasicDesign | WalkForwardDesign | BestOfNDesign | AblationDesign, Field(discriminator="kind")
]


def replaced(node: Any, parts: Sequence[str], value: Any, path: str) -> Any:
    """A copy of the document with the value at the dotted path; a `kind` replaces its component whole.

    Raises:
        ValueError: if there is no such field.
    """
    if not parts:
        return value
    key: str | int = parts[0]
    if isinstance(node, list) and parts[0].isdigit() and int(parts[0]) < len(node):
        key = int(parts[0])
        return [*node[:key], replaced(node[key], parts[1:], value, f"{path}{key}."), *node[key + 1 :]]
    if not isinstance(node, dict) or key not in node:
        known = sorted(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
        here = f"{path.rstrip('.') or 'the experiment'} has {', '.join(map(str, known)) or 'no fields'}"
        raise ValueError(f"design.field: there is no field {path}{key}; {here}")
    if key == "kind" and len(parts) == 1:
        return {"kind": value}
    return {**node, key: replaced(node[key], parts[1:], value, f"{path}{key}.")}


def value_at(document: Any, path: str) -> Any:
    """What stands at a dotted path."""
    for part in path.split("."):
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def slug(value: JsonValue) -> str:
    """A value as a part of a name: lower-case letters, digits and dashes."""
    if isinstance(value, dict):
        own = [value["kind"]] if "kind" in value else []
        text = "-".join(slug(part) for part in [*own, *(x for k in value if k != "kind" for x in (k, value[k]))])
    elif isinstance(value, list):
        text = "-".join(slug(part) for part in value)
    elif isinstance(value, str):
        text = value
    else:
        text = "none" if value is None else str(value).replace("-", "minus-", 1) if str(value)[0] == "-" else str(value)
    return _OTHER.sub("-", text.lower()).strip("-") or "empty"


def _leaf(parts: Sequence[str]) -> str:
    """The last name of a path, with the index of a list behind it; a component's name for its kind."""
    names = [part for part in parts if part != "kind"]
    first = max((i for i, part in enumerate(names) if not part.isdigit()), default=0)
    return slug("-".join(names[first:]))
