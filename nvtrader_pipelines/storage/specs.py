"""Experiment specs and the market as YAML that people write."""

from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.spec import MarketSpec
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home


@dataclass(frozen=True)
class FoundExperiments:
    """What `data/experiments` holds: the valid specs, and why the others are not."""

    specs: list[ExperimentSpec] = field(default_factory=list)
    problems: dict[Path, str] = field(default_factory=dict)


def read_experiments(home: Home) -> FoundExperiments:
    """Every YAML file of `data/experiments`, in the order of their names; of two with one name, neither."""
    read: dict[Path, ExperimentSpec] = {}
    found = FoundExperiments()
    for path in sorted(home.experiments.glob("*.y*ml")):
        try:
            read[path] = read_experiment(path)
        except StorageError as error:
            found.problems[path] = str(error)
    for path, spec in read.items():
        twins = [other.name for other, each in read.items() if each.name == spec.name and other != path]
        if twins:
            found.problems[path] = f"{path.name} is called {spec.name} like {', '.join(twins)}; give it another name"
        else:
            found.specs.append(spec)
    return found


def read_experiment(path: Path) -> ExperimentSpec:
    """One spec.

    Raises:
        StorageError: if the file is no YAML mapping or no valid spec.
    """
    content = _read_yaml(path)
    try:
        return ExperimentSpec.model_validate(content)
    except ValidationError as error:
        raise StorageError(f"{path.name} is no valid experiment: {explained(error)}") from error


def read_market(home: Home) -> MarketSpec:
    """Which sources are ingested; the default where `data/market.yaml` is missing.

    Raises:
        StorageError: if the file is no valid market.
    """
    if not home.market_file.exists():
        return MarketSpec()
    try:
        return MarketSpec.model_validate(_read_yaml(home.market_file))
    except ValidationError as error:
        raise StorageError(f"{home.market_file.name} is no valid market: {explained(error)}") from error


def explained(error: ValidationError) -> str:
    """The first problem of a document: where, what was found, what is allowed, and the nearest name."""
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in problem["loc"]) or "the document"
    text = f"{place}: {problem['msg'].removeprefix('Value error, ')}"
    if problem["type"] == "extra_forbidden":
        near = get_close_matches(str(problem["loc"][-1]), _field_names(), n=1)
        text += f"; did you mean {near[0]!r}?" if near else ""
    elif problem["type"] not in {"missing", "value_error"}:
        text += f", found {problem['input']!r}"
    more = error.error_count() - 1
    return text + (f" (and {more} more)" if more else "")


def _field_names() -> set[str]:
    schema: dict[str, Any] = ExperimentSpec.model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    return {name for part in parts for name in part.get("properties", {})}


class UniqueKeys(yaml.SafeLoader):
    """A safe loader that refuses a key written twice, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        """The mapping.

        Raises:
            yaml.constructor.ConstructorError: if a key is there twice.
        """
        keys = [key.value for key, _ in node.value]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def _read_yaml(path: Path) -> Any:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), UniqueKeys)  # a safe loader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise StorageError(f"{path.name} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise StorageError(f"{path.name} must hold a mapping of fields, but holds {type(content).__name__}")
    return content
