"""Experiment designs: ways to turn folds and seeds into one result."""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, JsonValue

from nvtrader_pipelines.components.component import Component, kind_of
from nvtrader_pipelines.components.explanation import format_value, suggest
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.splits import MIN_TEST_SESSIONS, Fold

UNTOUCHABLE = ("name", "description", "design")  # fields that the variants of an ablation set themselves
STAGED = ("environment", "agent")  # fields that the stages of a curriculum may vary
DEFAULT_SEEDS = ([0], [0, 1, 2])  # of a classical agent, of a learner
MAX_NAME_LENGTH = 63
MAX_SESSIONS_PER_MONTH = 31
_OTHER = re.compile(r"[^a-z0-9]+")


def _without_dates(value: Any) -> Any:
    """Convert dates to text, as in JSON; YAML reads them as dates."""
    if isinstance(value, dict):
        return {name: _without_dates(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_dates(inner) for inner in value]
    return value.isoformat() if isinstance(value, date) else value


Value = Annotated[JsonValue, BeforeValidator(_without_dates)]


class Design(Component):
    """Rule that turns folds and seeds into one result."""

    is_ablation: ClassVar[bool] = False  # runs nothing itself, but its variants

    def folds(self, folds: Sequence[Fold]) -> Sequence[Fold]:
        """Folds of the splitter that are run."""
        return folds

    def seed_weights(self, sharpe: Mapping[int, float]) -> dict[int, float]:
        """Weights of a fold's seeds, which sum to 1, by their validation Sharpe ratios; here, all the same."""
        return dict.fromkeys(sharpe, 1.0 / len(sharpe))


class BasicDesign(Design):
    """The splitter's last fold only; the weights of the seeds are averaged."""

    validation_sessions: ClassVar[int] = 0

    kind: Literal["basic"] = "basic"

    def folds(self, folds: Sequence[Fold]) -> Sequence[Fold]:
        """Last fold only."""
        return folds[-1:]


class WalkForwardDesign(Design):
    """Every fold of the splitter; the weights of the seeds are averaged (Pardo 1992)."""

    validation_sessions: ClassVar[int] = 0

    kind: Literal["walk_forward"] = "walk_forward"


class ValidatedDesign(Design):
    """Base of designs that weigh the seeds of every fold by net Sharpe ratios on held-out training sessions."""

    validation_sessions: Annotated[int, Field(ge=MIN_TEST_SESSIONS, le=1260)] = 252  # last ones of each training window

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require an agent that learns, and training windows that are longer than what is held out.

        Raises:
            ValueError: if the experiment has others.
        """
        if spec.agent.is_classical:
            raise ValueError(
                f"{field}: {kind_of(type(self))} compares seeds, but {spec.agent.kind} does not learn and has none; "
                "choose walk_forward or basic"
            )
        months, purged = getattr(spec.splitter, "train_months", None), spec.splitter.purge_size
        if months is not None and self.validation_sessions >= months * MAX_SESSIONS_PER_MONTH - purged:
            raise ValueError(
                f"{field}.validation_sessions: found {self.validation_sessions}, but {months} months of training hold "
                f"fewer than {months * MAX_SESSIONS_PER_MONTH - purged} sessions beside a purge of {purged}; hold "
                "fewer out"
            )


class BestOfNDesign(ValidatedDesign):
    """Every fold, each with the seed of the best net Sharpe ratio on held-out training sessions.

    The choice does not use the test window.
    """

    kind: Literal["best_of_n"] = "best_of_n"

    def seed_weights(self, sharpe: Mapping[int, float]) -> dict[int, float]:
        """All the weight on the seed with the best Sharpe ratio, the first of equals."""
        return {max(sharpe, key=sharpe.__getitem__): 1.0}


class MetaEnsembleDesign(ValidatedDesign):
    """Every fold; the seeds' target weights are averaged by the softmax of their net Sharpe ratios.

    The annualized ratios are those on held-out training sessions; the test window is not used. The rule is ours: a seed
    whose ratio is larger by 1 counts 2.7 times as much.
    """

    kind: Literal["meta_ensemble"] = "meta_ensemble"
    validation_sessions: Annotated[int, Field(ge=MIN_TEST_SESSIONS, le=1260)] = 63  # last ones of each training window

    def seed_weights(self, sharpe: Mapping[int, float]) -> dict[int, float]:
        """Softmax of the Sharpe ratios by seed."""
        largest = max(sharpe.values())
        scores = {seed: math.exp(ratio - largest) for seed, ratio in sharpe.items()}
        total = sum(scores.values())
        return {seed: score / total for seed, score in scores.items()}


class AblationDesign(Design):
    """One experiment per value of a field, all else equal; runs nothing itself.

    `field` is a dotted path such as `agent.gamma` or `environment.rewards.0.weight`; a path that ends in `kind`
    replaces the component whole.
    """

    validation_sessions: ClassVar[int] = 0
    is_ablation: ClassVar[bool] = True

    kind: Literal["ablation"] = "ablation"
    field: str = "environment.vol_penalty"
    values: Annotated[tuple[Value, ...], Field(min_length=2)] = (0.0, 0.5)

    def documents(self, document: dict[str, Any]) -> list[dict[str, Any]]:
        """Documents of the variants, one per value, each with its own name.

        Raises:
            ValueError: if the document has no such field, or it may not vary.
        """
        parts = self.field.split(".")
        if parts[0] in UNTOUCHABLE:
            raise ValueError(f"design.field: an ablation cannot vary {parts[0]!r}; name another field")
        names = _names(f"{document['name']}-{_leaf(parts)}-", self.values)
        if len(set(names)) != len(names):
            raise ValueError(f"design.values: they must differ, but give the experiments {', '.join(names)}")
        base = {**document, "design": {"kind": "walk_forward"}}
        if parts[0] == "agent" and document.get("seeds") in DEFAULT_SEEDS:
            del base["seeds"]  # unset, they default to those of the variant's agent
        return [
            {**replace_value(base, parts, value), "name": name} for value, name in zip(self.values, names, strict=True)
        ]


class CurriculumDesign(Design):
    """Every fold, each policy trained in stages: the experiment with other values first, then the experiment itself.

    A stage starts from the network and the scaler of the one before. The weights of the seeds are averaged.

    Source: Bengio et al. (2009), Curriculum learning; the stages are our choice.
    """

    validation_sessions: ClassVar[int] = 0

    kind: Literal["curriculum"] = "curriculum"
    stages: Annotated[tuple[dict[str, Value], ...], Field(min_length=1, max_length=8)] = (
        {"environment.turnover_cost_bps": 0.0},
    )  # values by dotted path, such as agent.total_timesteps; by default first without costs

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require an agent that trains from nothing.

        Raises:
            ValueError: if the experiment has another.
        """
        if spec.agent.is_classical or spec.agent.is_tuned:
            raise ValueError(f"{field}: a curriculum trains from nothing in stages, but {spec.agent.kind} does not")

    def documents(self, document: dict[str, Any]) -> list[dict[str, Any]]:
        """Documents of the stages before the experiment's own.

        Raises:
            ValueError: if the document has no such field, or it may not vary.
        """
        stages = []
        for values in self.stages:
            stage = {**document, "design": {"kind": "walk_forward"}}
            for path, value in values.items():
                if path.partition(".")[0] not in STAGED or path == "agent.start":
                    varied = "a stage varies environment and agent, but agent.start stays"
                    raise ValueError(f"design.stages: {varied}; found {path}; drop it")
                stage = replace_value(stage, path.split("."), value, field="design.stages")
            stages.append(stage)
        return stages


ExperimentDesign = Annotated[
    BasicDesign | WalkForwardDesign | BestOfNDesign | MetaEnsembleDesign | CurriculumDesign | AblationDesign,
    Field(discriminator="kind"),
    Family("designs"),
]


def replace_value(
    node: Any, parts: Sequence[str], value: Any, path: str = "the experiment", field: str = "design.field"
) -> Any:
    """Copy a document with a new value at a path; a new `kind` replaces the whole component.

    Raises:
        ValueError: if there is no such field.
    """
    if not parts:
        return value
    here, *rest = parts
    inside: dict[Any, Any] = (
        dict(node) if isinstance(node, dict) else dict(enumerate(node)) if isinstance(node, list) else {}
    )
    key = int(here) if isinstance(node, list) and here.isdigit() and here == str(int(here)) else here
    if key not in inside:
        names = sorted(map(str, inside))
        known = f"has {', '.join(names)}" if names else f"is {format_value(node)}"
        near = suggest(here, names) or "; name a field that is there"
        raise ValueError(f"{field}: there is no field {here!r}, since {path} {known}{near}")
    if parts == ["kind"]:
        return node if inside["kind"] == value else {"kind": value}
    inside[key] = replace_value(inside[key], rest, value, here if path == "the experiment" else f"{path}.{here}", field)
    return list(inside.values()) if isinstance(node, list) else inside


def value_at(document: Any, path: str) -> Any:
    """Value at a dotted path."""
    for part in path.split("."):
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _names(prefix: str, values: Sequence[JsonValue]) -> list[str]:
    """Names of the variants, with the value's digest where the label is too long."""
    digests = [short_id(hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()) for value in values]
    named = [f"{prefix}{label}" for label in labels(values)]
    return [
        name if len(name) <= MAX_NAME_LENGTH else f"{prefix}{digest}"
        for name, digest in zip(named, digests, strict=True)
    ]


def labels(values: Sequence[JsonValue]) -> list[str]:
    """Labels of values: kinds of components, and differing fields where kinds are equal."""
    outlines = [_outline(value) for value in values]
    labels = []
    for value, outline in zip(values, outlines, strict=True):
        alike = [dict(leaves(other)) for other, kinds in zip(values, outlines, strict=True) if kinds == outline]
        own = [(path, leaf) for path, leaf in leaves(value) if any(other.get(path) != leaf for other in alike)]
        shown_leaves = own if own or outline else leaves(value)
        parts = [f"{path.rpartition('.')[2]} {_text(leaf)}" if path else _text(leaf) for path, leaf in shown_leaves]
        labels.append(slug(" ".join([outline, *parts])))
    return labels


def leaves(value: JsonValue, path: str = "") -> list[tuple[str, JsonValue]]:
    """Scalars of a document with their dotted paths; an empty mapping or list counts as a scalar."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    if not items:
        return [(path, value)]
    return [leaf for name, inner in items for leaf in leaves(inner, f"{path}.{name}".removeprefix("."))]


def slug(text: str) -> str:
    """Convert text to lower-case letters, digits and dashes."""
    return _OTHER.sub("-", text.lower()).strip("-") or "empty"


def _outline(value: JsonValue) -> str:
    """Kinds of the components in a value; the text of a scalar."""
    if isinstance(value, dict):
        return str(value.get("kind", ""))
    return " ".join(map(_outline, value)) if isinstance(value, list) else _text(value)


def _text(value: JsonValue) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    text = str(value).removesuffix(".0")
    return f"minus {text}" if text.startswith("-") else text


def _leaf(parts: Sequence[str]) -> str:
    """Last name of a path, with a list index after it; a component's name for its kind."""
    names = [part for part in parts if part != "kind"]
    first = max((i for i, part in enumerate(names) if not part.isdigit()), default=0)
    return slug("-".join(names[first:]))
