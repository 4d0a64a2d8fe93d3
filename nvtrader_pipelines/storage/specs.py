"""Experiment specs and the market spec, as YAML files that people write."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.experiments.entrant_specs import EntrantFile, EntrantSpec
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.sources import LandingSource, MarketSpec
from nvtrader_pipelines.storage.compliance_files import read_limits, require_not_looser
from nvtrader_pipelines.storage.documents import (
    merge_documents,
    parse_document,
    read_document,
    resolve_document,
    validate_document,
)
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import escape_name, write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.read_sources import note_read

_TEMPLATE_FIELDS = {  # fields in a new file: those that people change most
    "market": ("source",),
    "environment": ("lookback", "rebal_freq", "turnover_cost_bps", "vol_penalty", "rewards"),
    "agent": ("kind", "total_timesteps", "learning_rate", "gamma", "backbone"),
    "splitter": ("kind", "test_months", "train_months"),
    "design": ("kind",),
}
_HINT = (
    "# Fields that are left out have their defaults. `nvtrader components` lists all components;\n"
    "# `nvtrader schema experiment` writes the JSON Schema with which an editor checks this file.\n"
)
_DRAFT = "# Written by `nvtrader experiments new` ({digest}): `nvtrader ui` trains it once it is edited.\n"
_FROM_PYTHON = "# Written from Python, which replaces it by the next experiment of this name.\n"


@dataclass(frozen=True)
class FoundExperiments:
    """Content of `data/experiments`: the valid specs, and the problem of each other file."""

    specs: list[ExperimentSpec] = field(default_factory=list)
    problems: dict[Path, str] = field(default_factory=dict)
    drafts: set[str] = field(default_factory=set)  # partition keys of files that nobody has edited since `new`


def read_experiments(home: Home) -> FoundExperiments:
    """Read the YAML files of `data/experiments`, sorted by path.

    Files that define the same experiment name are all refused, and so is an experiment whose risk limits are looser
    than the desk's limits that block plans.

    Raises:
        StorageError: if the desk's limits are not valid.
    """
    note_read(home.experiments)
    desk_limits = read_limits(home)
    read: dict[Path, ExperimentSpec] = {}
    experiments = FoundExperiments()
    for path in sorted(home.experiments.glob("*.y*ml")):
        try:
            spec = read_experiment(path)
            for variant in spec.variants():
                require_not_looser(variant.pipeline.risk_limits, desk_limits)
            read[path] = spec
        except StorageError as error:
            experiments.problems[Path(escape_name(path))] = str(error)
    names = {path: {variant.name for variant in (spec, *spec.variants())} for path, spec in read.items()}
    for path, spec in read.items():
        twins = {other: sorted(names[path] & names[other]) for other in read if other != path}
        clashes = [f"{', '.join(same)}, as in {other.name}" for other, same in twins.items() if same]
        if clashes:
            experiments.problems[path] = f"{path.name} has the name {' and '.join(clashes)}; choose another name"
        else:
            experiments.specs.append(spec)
            if _is_draft(path):
                experiments.drafts.update(variant.partition_key for variant in (spec, *spec.variants()))
    return experiments


def read_experiment(path: Path) -> ExperimentSpec:
    """Read an experiment, merged over the files it `extends`.

    Raises:
        StorageError: if a file is not a YAML mapping, or the result is not a valid experiment.
    """
    return validate_document(resolve_document(path), ExperimentSpec, f"{path.name} is not a valid experiment")


def entrant_files(home: Home) -> list[Path]:
    """Spec files of `data/entrants`, sorted by path."""
    note_read(home.entrants)
    files = home.entrants.glob("*")
    return sorted(path for path in files if path.suffix in {".yaml", ".yml"} and not path.name.startswith("."))


def read_entrant(path: Path) -> EntrantSpec:
    """Read the spec file of an entrant.

    Raises:
        StorageError: if the file is not a YAML mapping or not a valid entrant.
    """
    return validate_document(read_document(path), EntrantFile, f"{path.name} is not a valid entrant").root


def read_market(home: Home) -> MarketSpec:
    """Read the market sources to ingest; without `data/market.yaml`, return the default.

    Raises:
        StorageError: if the file is not a valid market.
    """
    note_read(home.market_file)
    if not home.market_file.exists():
        return MarketSpec()
    content = read_document(home.market_file)
    return validate_document(content, MarketSpec, f"{home.market_file.name} is not a valid market")


def add_landing_source(home: Home, source: LandingSource) -> None:
    """Append a source to `data/market.yaml`, which keeps its text.

    Raises:
        StorageError: if the text does not end with a list of sources.
    """
    before, line = read_market(home), f"  - {{kind: landing, name: {source.name}, calendar: {source.calendar}}}\n"
    text = home.market_file.read_text() if home.market_file.exists() else yaml.safe_dump(before.model_dump(mode="json"))
    after = f"{text.rstrip()}\n{line}".encode()
    with suppress(StorageError):
        market = validate_document(parse_document(after, home.market_file.name), MarketSpec, "")
        if market == MarketSpec(sources=(*before.sources, source)):
            write_atomically(home.market_file, after)
            return
    raise StorageError(f"the market needs a source that never closes; add it to data/market.yaml: {line.strip()}")


def spec_yaml(spec: ExperimentSpec) -> bytes:
    """Return a spec with every field as YAML."""
    return yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False).encode()


def write_experiment(home: Home, name: str, like: str | None = None, fields: Mapping[str, Any] | None = None) -> Path:
    """Write the file of a new experiment, with the defaults or extending another file.

    Args:
        home: home of the file.
        name: of the experiment.
        like: experiment to extend.
        fields: of the experiment, instead of the defaults.

    Raises:
        StorageError: if the name is invalid or taken, or there is no experiment `like`.
    """
    try:
        spec = ExperimentSpec(name=name)
    except ValidationError as error:
        raise StorageError(
            f"{name!r} cannot be the name of an experiment: it must have 1 to 63 lower-case letters a to z, digits and "
            "dashes (such as my-first), begin with a letter or digit, and not be a baseline's name"
        ) from error
    names = {experiment_name(path): path for path in sorted(home.experiments.glob("*.y*ml"))}
    path = home.experiments / f"{name}.yaml"
    if name in names or path.exists():
        raise StorageError(f"experiment {name} already exists in {names.get(name, path)}; choose another name")
    if like is not None and like not in names:
        raise StorageError(f"there is no experiment {like!r}; there are {', '.join(names)}{suggest(like, list(names))}")
    content = _template(spec) if like is None else {"extends": names[like].name, "name": name, "description": ""}
    content = merge_documents(content, dict(fields or {}))
    text = (_HINT + yaml.safe_dump(content, sort_keys=False)).encode()
    write_atomically(path, _draft_line(text) + text)
    return path


def store_experiment(home: Home, content: ExperimentSpec | Mapping[str, Any]) -> ExperimentSpec:
    """Write an experiment, given as a spec or the content of its YAML; return the spec.

    A file that holds the same experiment stays; of others, only those written by this function are replaced.

    Raises:
        StorageError: if the content is not a valid experiment, or a person wrote another of this name.
    """
    plain = to_jsonable_python(
        content, fallback=lambda scalar: scalar.item() if hasattr(scalar, "item") else repr(scalar)
    )
    spec = validate_document(plain, ExperimentSpec, "the content is not a valid experiment")
    names = {experiment_name(path): path for path in sorted(home.experiments.glob("*.y*ml"))}
    path = names.get(spec.name, home.experiments / f"{spec.name}.yaml")
    text = _FROM_PYTHON + yaml.safe_dump(_kind_first(spec.model_dump(mode="json")), sort_keys=False)
    if not path.exists():
        write_atomically(path, text.encode())
    elif path.read_bytes().startswith(_FROM_PYTHON.encode()):
        if path.read_bytes() != text.encode():
            write_atomically(path, text.encode())
    elif read_experiment(path) != spec:
        raise StorageError(
            f"{path} holds another experiment {spec.name}, written by a person, and is not replaced; choose another "
            f"name, or run the file by its name: {spec.name!r}"
        )
    return spec


def experiment_name(path: Path) -> str:
    """Name of the experiment in a file, valid or not; without one, that of the file."""
    try:
        return str(read_document(path).get("name", path.stem))
    except StorageError:
        return escape_name(Path(path.stem))


def _draft_line(text: bytes) -> bytes:
    return _DRAFT.format(digest=short_id(hashlib.sha256(text).hexdigest())).encode()


def _is_draft(path: Path) -> bool:
    """Whether a file is as `write_experiment` wrote it, in this release or another."""
    line, newline, text = path.read_bytes().partition(b"\n")
    return line + newline == _draft_line(text)


def _template(spec: ExperimentSpec) -> dict[str, Any]:
    content = _kind_first(spec.model_dump(mode="json"))
    chosen = {part: {name: content[part][name] for name in names} for part, names in _TEMPLATE_FIELDS.items()}
    return {"name": spec.name, "description": "", **chosen, "seeds": content["seeds"]}


def _kind_first(value: Any) -> Any:
    """Sort each component's kind before its other fields."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name != "kind")
        return {name: _kind_first(value[name]) for name in names}
    return [_kind_first(inner) for inner in value] if isinstance(value, list) else value
