"""YAML files as documents: keys are unique, 1e-3 is a number, and one file may extend another."""

import re
from pathlib import Path
from typing import Any

import yaml

from nvtrader_pipelines.storage.errors import StorageError

Document = dict[str, Any]
_OF_A_WRONG_TAG = (ValueError, KeyError, AttributeError)  # what PyYAML raises at `!!int x`, `!!bool x`, `!!timestamp x`


class DocumentLoader(yaml.SafeLoader):
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

    def construct_yaml_timestamp(self, node: yaml.ScalarNode) -> Any:
        """The date or time; the text itself where there is no such day, to be refused where a date must stand."""
        try:
            return super().construct_yaml_timestamp(node)
        except ValueError:
            return node.value


DocumentLoader.add_constructor("tag:yaml.org,2002:timestamp", DocumentLoader.construct_yaml_timestamp)
# YAML 1.2's numbers with an exponent; YAML 1.1, which PyYAML reads, takes 1e-3 and 1E5 for text
DocumentLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_document(path: Path) -> Document:
    """The mapping of one file.

    Raises:
        StorageError: if the file cannot be read, or is no YAML mapping.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), DocumentLoader)  # a safe loader
    except RecursionError as error:
        raise StorageError(f"{path.name} is nested too deep to be read; write it with fewer levels") from error
    except (yaml.YAMLError, *_OF_A_WRONG_TAG) as error:
        raise StorageError(f"{path.name} is no YAML: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(content, dict):
        raise StorageError(f"{path.name} must hold a mapping of fields, but holds {type(content).__name__}")
    return content


def extended(path: Path, extending: tuple[Path, ...] = ()) -> Document:
    """The mapping of one file, over that of the file it `extends`, and so on; a name is not handed down.

    Raises:
        StorageError: if a file cannot be read, is no YAML mapping, or extends itself in the end.
    """
    chain = (*extending, path.resolve())
    content = read_document(path)
    if "extends" not in content:
        return content
    base = content.pop("extends")
    if not isinstance(base, str):
        raise StorageError(f"{path.name}: extends must be the path of a file from this file's folder, found {base!r}")
    target = (path.parent / base).resolve()
    if target in chain:
        told = " extends ".join(each.name for each in (*chain[chain.index(target) :], target))
        raise StorageError(f"{told}: no file may extend itself in the end; remove one extends")
    if not target.is_file():
        raise StorageError(f"{path.name} extends {base}, but {target} is no file; name one from this file's folder")
    inherited = extended(target, chain)
    inherited.pop("name", None)
    return merged(inherited, content)


def merged(base: Document, changes: Document) -> Document:
    """The base with the changes: mappings are merged, lists replaced, and so are components of another kind."""
    result = dict(base)
    for name, value in changes.items():
        before = base.get(name)
        if isinstance(before, dict) and isinstance(value, dict) and _same_kind(before, value):
            result[name] = merged(before, value)
        else:
            result[name] = value
    return result


def _same_kind(base: Document, changes: Document) -> bool:
    return "kind" not in changes or base.get("kind", changes["kind"]) == changes["kind"]
