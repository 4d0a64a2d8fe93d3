"""Facts of a search space: its knobs, and how the base was brought within them."""

from pathlib import Path
from typing import Any

from pydantic import RootModel

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.proposal_bounds import BoundsClip, Snapped
from nvtrader_pipelines.research.space import SearchSpace, base_experiment, search_space
from nvtrader_pipelines.research.space_file import read_space
from nvtrader_pipelines.runs.experiment_document import read_named_experiment
from nvtrader_pipelines.storage.home import Home


class KnobFacts(Document):
    """Row of a knob."""

    knob: str
    group: str
    low: int | float
    high: int | float
    values: str  # whole or real
    scale: str  # linear or log
    base: int | float


class SpaceDocument(Document):
    """Search space for people and programs."""

    mode: SearchMode
    base: str  # name of the experiment
    knobs: tuple[KnobFacts, ...]
    base_clips: tuple[BoundsClip, ...]
    base_snaps: tuple[Snapped, ...]
    notices: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """Sentences below the table."""
        return [
            f"base: {self.base}",
            *(
                f"{base_clip.knob} of the base is clipped from {base_clip.proposed:g} to {base_clip.used:g}"
                for base_clip in self.base_clips
            ),
            *(
                f"{base_snap.knob} of the base is lowered from {base_snap.proposed:g} to {base_snap.used:g}"
                for base_snap in self.base_snaps
            ),
            *self.notices,
        ]


class DeltaSchema(RootModel[dict[str, Any]]):
    """JSON Schema of a delta."""


def find_space(home: Home, mode: SearchMode, like: str | None, file: Path | None) -> SearchSpace:
    """Return the space of a mode or a file, around an experiment of data/experiments or the mode's own.

    Raises:
        ValueError: if the experiment lacks a knob.
        StorageError: if there is no such experiment, or the file is no valid space.
    """
    base = base_experiment(mode) if like is None else read_named_experiment(home, like)
    return search_space(mode, base) if file is None else read_space(file, base, mode)


def space_document(space: SearchSpace) -> SpaceDocument:
    """Describe a space."""
    knobs = [
        KnobFacts.of(
            knob,
            knob=knob.name,
            values="whole" if knob.is_whole else "real",
            scale="log" if knob.is_log else "linear",
            base=space.base_values[knob.name],
        )
        for knob in space.knobs
    ]
    return SpaceDocument.of(space, base=space.base.name, knobs=tuple(knobs))
