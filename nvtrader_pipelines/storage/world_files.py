"""Experiments in worlds, as YAML files of `data/worlds`."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.experiments.world_experiment import WorldExperiment
from nvtrader_pipelines.storage.documents import resolve_document, validate_document
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.files import escape_name
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.read_sources import note_read


class FoundWorlds(NamedTuple):
    """Content of `data/worlds`: the valid experiments, and the problem of each other file."""

    specs: dict[str, WorldExperiment]  # by name
    problems: dict[str, str]  # by name of the file


def read_worlds(home: Home) -> FoundWorlds:
    """Read the files of `data/worlds`, sorted by path; files of one name are all refused."""
    note_read(home.worlds)
    read, worlds = dict[Path, WorldExperiment](), FoundWorlds({}, {})
    for path in sorted(home.worlds.glob("*.yaml")):
        try:
            read[path] = read_world_file(path)
        except StorageError as error:
            worlds.problems[escape_name(path).rpartition("/")[2]] = str(error)
    counts = Counter(spec.name for spec in read.values())
    for path, spec in read.items():
        if counts[spec.name] == 1:
            worlds.specs[spec.name] = spec
        else:
            worlds.problems[path.name] = f"{path.name} has the name {spec.name} of another file; choose another name"
    return worlds


def read_world_file(path: Path) -> WorldExperiment:
    """Read an experiment in a world, merged over the files it `extends`.

    Raises:
        StorageError: if a file is not a YAML mapping, or the result is not valid.
    """
    return validate_document(resolve_document(path), WorldExperiment, f"{path.name} is not a valid world")


def read_world(home: Home, name: str) -> WorldExperiment:
    """Read an experiment in a world by its name.

    Raises:
        NotFoundError: if no valid file has the name.
    """
    worlds = read_worlds(home)
    if name not in worlds.specs:
        problems = "".join(f"; {problem}" for problem in worlds.problems.values())
        names = f", or use one of: {', '.join(worlds.specs)}{suggest(name, [*worlds.specs])}" if worlds.specs else ""
        raise NotFoundError(
            f"there is no world {name!r}; write data/worlds/<file>.yaml with this name{names}{problems}"
        )
    return worlds.specs[name]
