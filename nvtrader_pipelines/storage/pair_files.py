"""Preference pairs as files: sets that policies are tuned to, named by their SHA-256, and exports."""

import hashlib
import io
from pathlib import Path

import polars as pl

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.shared_files import SharedFiles


def pair_path(home: Home, digest: str) -> Path:
    """Path of a set."""
    return home.preference_pairs / f"{digest}.parquet"


def pair_digest(pairs: pl.DataFrame) -> str:
    """SHA-256 of a set; equal pairs have equal ones."""
    return hashlib.sha256(_content(pairs)).hexdigest()


def write_pairs(home: Home, pairs: pl.DataFrame) -> str:
    """Write a set unless it is there, and return its SHA-256."""
    content = _content(pairs)
    digest = hashlib.sha256(content).hexdigest()
    if not pair_path(home, digest).exists():
        write_atomically(pair_path(home, digest), content)
    SharedFiles(home).push(pair_path(home, digest))
    return digest


def read_pairs(home: Home, digest: str) -> pl.DataFrame:
    """Read a set.

    Raises:
        StorageError: if there is none, or its file was changed.
    """
    path = pair_path(home, digest)
    SharedFiles(home).try_pull(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise StorageError(
            f"there are no preference pairs {digest[:8]}; restore {path.name} in data/rl/preference_pairs, or tune to "
            "the pairs of today with `nvtrader preferences train`"
        ) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise StorageError(f"{path} was changed: its SHA-256 must be its name; restore it")
    return pl.read_parquet(io.BytesIO(content))


def write_export(rows: pl.DataFrame, path: Path) -> None:
    """Write rows as JSON lines or Parquet, as the suffix of the path says.

    Raises:
        ValueError: if the suffix is neither .jsonl nor .parquet.
    """
    writers = {".jsonl": rows.write_ndjson, ".parquet": rows.write_parquet}
    suffix, buffer = path.suffix.lower(), io.BytesIO()
    if suffix not in writers:
        raise ValueError(
            f"the name of an export must end in .jsonl or .parquet, but {path.name} "
            f"{f'ends in {suffix}' if suffix else 'has no suffix'}; name another path"
        )
    writers[suffix](buffer)
    write_atomically(path, buffer.getvalue())


def _content(pairs: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    pairs.sort("pair_id", "fold").write_parquet(buffer, compression="zstd")
    return buffer.getvalue()
