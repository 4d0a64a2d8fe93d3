"""Results of the judgement by the digest of their inputs, so that none is computed twice."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import polars as pl

from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.home import Home

DOCUMENT = "result.json"


class Result(NamedTuple):
    """Result of a judgement: a JSON document, and frames by name."""

    document: Any
    frames: Mapping[str, pl.DataFrame] = {}


class ResultStore(Protocol):
    """Store of results by digest; a dictionary is one."""

    def get(self, digest: str, /) -> Result | None:
        """Return the result of this digest; None if there is none."""
        ...

    def __contains__(self, digest: str, /) -> bool:
        """Whether there is a result of this digest."""
        ...

    def __setitem__(self, digest: str, result: Result, /) -> None:
        """Store a result."""
        ...


class Judgements:
    """Results as folders of `warehouse/judgements`; a deleted one is computed again."""

    def __init__(self, home: Home) -> None:
        self._folder = home.judgements

    def __contains__(self, digest: str, /) -> bool:
        """Whether there is a result of this digest."""
        return (self._folder / digest / DOCUMENT).exists()

    def get(self, digest: str, /) -> Result | None:
        """Return the result of this digest; None if missing. A damaged one is deleted and missing."""
        place = self._folder / digest
        try:
            document = json.loads((place / DOCUMENT).read_bytes())
            frames = {path.stem: pl.read_parquet(path, glob=False) for path in sorted(place.glob("*.parquet"))}
            os.utime(place)
        except FileNotFoundError:
            return None
        except (ValueError, pl.exceptions.PolarsError):
            shutil.rmtree(place)
            return None
        return Result(document, frames)

    def __setitem__(self, digest: str, result: Result, /) -> None:
        """Store a result; the first of two processes with the same one prevails."""
        aside = self._folder / f".{digest}.{uuid4().hex}"
        aside.mkdir(parents=True)
        for name, rows in result.frames.items():
            rows.write_parquet(aside / f"{name}.parquet")
        (aside / DOCUMENT).write_text(json.dumps(result.document))
        try:
            aside.rename(self._folder / digest)
        except OSError:  # it exists
            shutil.rmtree(aside)

    def compute_once(self, digest: str, compute: Callable[[], Result]) -> Result:
        """Return the result of this digest; compute and store it once over all processes."""
        with file_lock(self._folder / f".{digest}.lock"):
            if (known := self.get(digest)) is None:
                self[digest] = known = compute()
        return known

    def delete_unused(self, before: datetime) -> int:
        """Delete the results that were last used before a moment; return their number."""
        unused = [path for path in self._all() if path.stat().st_mtime < before.timestamp()]
        for path in unused:
            path.unlink() if path.suffix == ".lock" else shutil.rmtree(path)
        return sum(path.suffix != ".lock" for path in unused)

    def _all(self) -> list[Path]:
        return list(self._folder.iterdir()) if self._folder.exists() else []
