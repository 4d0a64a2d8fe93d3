"""YAML documents: unique keys, 1e-3 as a number, and files that extend others."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from nvtrader_pipelines.components.component import kind_named
from nvtrader_pipelines.components.explanation import KEY, Written, explain, format_value
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import require_regular_file
from nvtrader_pipelines.storage.read_sources import note_read

Model = TypeVar("Model", bound=BaseModel)
MAX_BYTES = 256 << 10  # of a file; PyYAML reads it in two seconds
MAX_VALUES = 100_000  # of a document, with those that references to anchors repeat
_TOKEN = re.compile(r"'?<([a-z ]+)>'?")  # of the parser, such as '<stream end>'
_PLAIN_WORDS = {  # problems that the parser describes in words of Python or YAML
    "found unhashable key": "a key must be text",
    "could not determine a constructor for the tag": "there is no tag",
    "but found another document": "a file must hold one document, but a second one begins",
}
_BAD_TAG_ERRORS = (ValueError, KeyError, AttributeError)  # PyYAML on `!!int x`, `!!bool x`, `!!timestamp x`


class YamlDocument(dict[str, Any]):
    """Mapping in YAML, with the texts of its file and of those that it extends, its own last."""

    texts: tuple[str, ...] = ()

    def written(self, location: tuple[str | int, ...], value: Any) -> str | None:
        """Text without quotes that YAML reads as the value at a location; None if there is none."""
        for text in reversed(self.texts):
            scalar = _scalar_at(text, location, value)
            if scalar is not None and _reading(scalar) == value:
                return scalar
        return None


class DocumentLoader(yaml.SafeLoader):
    """Safe YAML loader that refuses duplicate keys, where PyYAML would silently take the last."""

    n_merged = 0  # fields that merges repeat

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge the mappings that `<<` names.

        Raises:
            yaml.constructor.ConstructorError: if merges repeat fields without bound.
        """
        merges = [value for key, value in node.value if key.tag == "tag:yaml.org,2002:merge"]
        for merge in merges:
            for mapping in merge.value if isinstance(merge, yaml.SequenceNode) else [merge]:
                if isinstance(mapping, yaml.MappingNode):
                    self.flatten_mapping(mapping)
                    self.n_merged += len(mapping.value)
                if self.n_merged > MAX_VALUES:  # before PyYAML copies them
                    problem = f"merges repeat more than {MAX_VALUES:,} fields"
                    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        super().flatten_mapping(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        """Construct a mapping.

        Raises:
            yaml.constructor.ConstructorError: if a key occurs twice.
        """
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                problem = f"the key {key.value!r} occurs twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            keys.update([key.value] if isinstance(key, yaml.ScalarNode) else ())
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_timestamp(self, node: yaml.ScalarNode) -> Any:
        """Construct a date or time, or the text if there is no such day, which its field then refuses."""
        try:
            return super().construct_yaml_timestamp(node)
        except ValueError:
            return node.value


DocumentLoader.add_constructor("tag:yaml.org,2002:timestamp", DocumentLoader.construct_yaml_timestamp)
# Exponents as in YAML 1.2; PyYAML reads YAML 1.1, where 1e-3 and 1E5 are text.
DocumentLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_document(path: Path) -> YamlDocument:
    """Read the mapping in a YAML file.

    Raises:
        StorageError: if the file cannot be read, or is not a YAML mapping.
    """
    require_regular_file(path)
    try:
        _require_small(path)
        return parse_document(path.read_bytes(), path.name)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error


def parse_document(text: bytes, name: str) -> YamlDocument:
    """Parse a mapping in YAML.

    Raises:
        StorageError: if it is not a YAML mapping in UTF-8.
    """
    try:
        decoded = text.decode()
        content = yaml.load(decoded, DocumentLoader)  # a safe loader
    except (yaml.YAMLError, RecursionError, *_BAD_TAG_ERRORS) as error:
        raise StorageError(f"{name} is not valid YAML: {_describe(error)}") from error
    if not isinstance(content, dict):
        raise StorageError(f"{name} must hold a mapping, in lines of `field: value`, but {_describe_content(content)}")
    _require_bounded(content, name)
    document = YamlDocument(content)
    document.texts = (decoded,)
    return document


@lru_cache(maxsize=4)
def _compose(text: str) -> yaml.Node | None:
    return yaml.compose(text, DocumentLoader)


def _scalar_at(text: str, location: tuple[str | int, ...], value: Any) -> str | None:
    """Text of the plain scalar or key at a location, whose kinds and members of unions are no part of the text."""
    node = _compose(text)
    for part in location:
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
        elif isinstance(node, yaml.MappingNode) and part == KEY:
            scalars = (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.style is None)
            node = next((key for key in scalars if _reading(key.value) == value), None)
        elif isinstance(node, yaml.MappingNode):
            node = next((inner for key, inner in node.value if key.value == str(part)), node)
    return node.value if isinstance(node, yaml.ScalarNode) and node.style is None else None


def _reading(scalar: str) -> Any:
    return yaml.load(scalar, DocumentLoader)


def _require_bounded(content: dict[str, Any], name: str) -> None:
    """Raise if references to anchors repeat parts of a document without bound."""
    rest: list[Any] = [content]
    for _ in range(MAX_VALUES):
        if not rest:
            return
        value = rest.pop()
        rest.extend(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
    raise StorageError(f"{name} must hold {MAX_VALUES:,} values at most, but has more; repeat fewer of them by anchors")


def written_in(content: Any) -> Written:
    """Look-up of the texts of a document; of other content, of none."""
    return content.written if isinstance(content, YamlDocument) else lambda *_: None


def validate_document(content: Any, model: type[Model], refusal: str) -> Model:
    """Validate the content of a document.

    Raises:
        StorageError: with the refusal, such as `x.yaml is not a valid experiment`, and what is wrong.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise StorageError(f"{refusal}: {explain(error, model, written_in(content))}") from error


def _require_small(path: Path) -> None:
    n_bytes = path.stat().st_size
    if n_bytes > MAX_BYTES:
        raise StorageError(
            f"{path.name} must have at most {MAX_BYTES >> 10} KiB, but has {n_bytes >> 10:,}; remove what is no setting"
        )


def _describe(error: Exception) -> str:
    """Describe why a text is not valid YAML: the line and the problem."""
    match error:
        case yaml.MarkedYAMLError(problem=str(problem), problem_mark=yaml.Mark() as mark):
            for jargon, plain in _PLAIN_WORDS.items():
                problem = problem.replace(jargon, plain)
            return f"line {mark.line + 1}, column {mark.column + 1}: " + _TOKEN.sub(r"the \1", problem)
        case UnicodeDecodeError() | yaml.reader.ReaderError():
            return "it must be text in UTF-8, but holds other characters; save it again as UTF-8"
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return "a value does not fit its tag, such as !!int, or is a number of over 4,300 digits; mend it"


def _describe_content(content: object) -> str:
    match content:
        case None:
            return "it is empty"
        case list():
            return "it holds a list"
        case _:
            return f"it holds only {format_value(content)}"


def resolve_document(path: Path, extending: tuple[Path, ...] = ()) -> YamlDocument:
    """Read a YAML file merged over the files it `extends`; names are not inherited.

    Raises:
        StorageError: if a file cannot be read, is not a YAML mapping, or the chain is circular.
    """
    chain = (*extending, path.resolve())
    content = read_document(path)
    if "extends" not in content:
        return content
    base = content.pop("extends")
    if not isinstance(base, str):
        raise StorageError(f"{path.name}: extends must be a path relative to this file, found {format_value(base)}")
    target = (path.parent / base).resolve()
    if target in chain:
        circle = " extends ".join(path.name for path in (*chain[chain.index(target) :], target))
        raise StorageError(f"{circle}: files must not extend each other in a circle; remove one extends")
    note_read(target)
    if not target.is_file():
        raise StorageError(f"{path.name} extends {base}, but {target} is not a file; give a relative path to one")
    inherited = resolve_document(target, chain)
    inherited.pop("name", None)
    merged = YamlDocument(merge_documents(inherited, content))
    merged.texts = (*inherited.texts, *content.texts)
    return merged


def merge_documents(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Merge changes into a base; lists and components of another kind are replaced."""
    result = dict(base)
    for name, value in changes.items():
        before = base.get(name)
        if isinstance(before, dict) and isinstance(value, dict) and _same_kind(before, value):
            result[name] = merge_documents(before, value)
        else:
            result[name] = value
    return result


def _same_kind(base: dict[str, Any], changes: dict[str, Any]) -> bool:
    kind = changes.get("kind", base.get("kind"))
    return "kind" not in base or kind_named(kind) == kind_named(base["kind"])
