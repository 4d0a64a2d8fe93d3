"""Contests by name: the sessions on which entrants are compared."""

from collections.abc import Mapping
from datetime import date
from typing import Self

from pydantic import RootModel, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.market.sources.delivery import SourceName
from nvtrader_pipelines.storage.documents import read_document, validate_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.read_sources import note_read


class ContestSpec(Component):
    """Window of a contest; entrants that may not be scored on all its sessions are refused."""

    source: SourceName | None = None  # null: every source
    first: date | None = None  # null: the first session that every entrant may be scored on
    last: date | None = None  # null: the last such session

    @model_validator(mode="after")
    def _require_ordered_dates(self) -> Self:
        if self.first and self.last and self.first >= self.last:
            raise ValueError(f"first must be before last, but they are {self.first} and {self.last}; set a later last")
        return self


class ContestFile(RootModel[dict[str, ContestSpec]]):
    """Contests by name, as in `data/contests.yaml`."""


REPORTED, COMMON = "reported", "common"
BUILT_IN = {
    REPORTED: ContestSpec(source="sample", first=date(2010, 1, 1), last=date(2022, 12, 28)),
    COMMON: ContestSpec(),
}


def read_contests(home: Home) -> dict[str, ContestSpec]:
    """Read the contests of `data/contests.yaml` and the built-in ones that it does not define.

    Raises:
        StorageError: if the file is not a YAML mapping of names to contests.
    """
    path = home.contests
    note_read(path)
    if not path.exists():
        return BUILT_IN
    own = validate_document(read_document(path), ContestFile, f"{path.name} is not a valid list of contests").root
    return BUILT_IN | own


def default_contests(contests: Mapping[str, ContestSpec]) -> dict[str, ContestSpec]:
    """Contests of the scoreboard; a source has the first that a run can be scored in."""
    return {name: contests[name] for name in (REPORTED, COMMON)}


def contests_of(contests: Mapping[str, ContestSpec], source: str) -> dict[str, ContestSpec]:
    """Contests on a source."""
    return {name: spec for name, spec in contests.items() if spec.source in (None, source)}


def find_contest(contests: Mapping[str, ContestSpec], name: str) -> dict[str, ContestSpec]:
    """Find a contest by name.

    Raises:
        StorageError: if there is none.
    """
    if name not in contests:
        raise StorageError(
            f"there is no contest {name!r}; there are {', '.join(contests)}{suggest(name, list(contests))}; add one to "
            "data/contests.yaml"
        )
    return {name: contests[name]}
