"""Results of the judgement by the digest of their inputs, so that none is computed twice."""

import hashlib
import io
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
from nvtrader_pipelines.storage.read_sources import note_read

DOCUMENT, MANIFEST = "result.json", "manifest.json"  # the manifest has the digest of every other file


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
    """Results as folders of `warehouse/judgements`; a missing or damaged one is computed again."""

    def __init__(self, home: Home) -> None:
        self._folder = home.judgements

    def __contains__(self, digest: str, /) -> bool:
        """Whether a result of this digest is stored; `get` verifies its files."""
        note_read(self._folder / digest)
        return (self._folder / digest / MANIFEST).exists()

    def get(self, digest: str, /) -> Result | None:
        """Return the result of this digest; None if missing. One whose files are not as stored is deleted."""
        place = self._folder / digest
        note_read(place)
        try:
            files = {path.name: path.read_bytes() for path in place.iterdir()}
            if json.loads(files.pop(MANIFEST)) != {"result": digest, **_digests(files)}:
                raise ValueError(f"the files of {digest} are not as stored")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, KeyError, ValueError):
            _delete(place)
            return None
        os.utime(place)
        document = json.loads(files.pop(DOCUMENT))
        return Result(document, {Path(name).stem: pl.read_parquet(content) for name, content in files.items()})

    def __setitem__(self, digest: str, result: Result, /) -> None:
        """Store a result; the first of two processes with the same one prevails."""
        files = {f"{name}.parquet": _parquet(rows) for name, rows in result.frames.items()}
        files[DOCUMENT] = json.dumps(result.document).encode()
        aside = self._folder / f".{digest}.{uuid4().hex}"
        aside.mkdir(parents=True)
        manifest = json.dumps({"result": digest, **_digests(files)}).encode()
        for name, content in {**files, MANIFEST: manifest}.items():
            (aside / name).write_bytes(content)
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
        unused = [path for path in self._folder.glob("*") if path.stat().st_mtime < before.timestamp()]
        for path in unused:
            _delete(path)
        return sum(path.suffix != ".lock" for path in unused)


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of each file."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def _parquet(rows: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    rows.write_parquet(buffer)
    return buffer.getvalue()


def _delete(path: Path) -> None:
    """Delete a file or folder, which another process may have deleted."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
