"""Landing zone: files delivered by vendors, read but never rewritten, and copied by digest."""

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from nvtrader_pipelines.market.series_files import holds_series
from nvtrader_pipelines.market.sources import LandedFile, UnreadableFile
from nvtrader_pipelines.market.sources.delivery import LANDING, SERIES
from nvtrader_pipelines.market.sources.landing import early_refusal
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import escape_name, fingerprint, require_regular_file, write_atomically
from nvtrader_pipelines.storage.home import Home

UNFINISHED = (".tmp", ".part", ".partial", ".crdownload", ".swp")


def landing_folder(home: Home, source: str) -> Path:
    """Folder that a landing source reads: `data/landing`, or its own one there."""
    return home.landing if source == LANDING else home.landing / source


def landed_paths(landing: Path) -> list[Path]:
    """List all but folders below a folder of the landing zone, without hidden and unfinished files."""
    paths = (path for path in landing.rglob("*") if not path.is_dir())
    return sorted(path for path in paths if not _is_unfinished(path.relative_to(landing)))


def landed_files(home: Home) -> list[LandedFile]:
    """Read the landed files, named relative to `data/landing`.

    A file that is refused for its name, kind or size is not opened and has no content.
    """
    return [_landed_file(path, escape_name(path.relative_to(home.landing))) for path in landed_paths(home.landing)]


def deliver_files(home: Home, files: Sequence[Path], source: str = LANDING) -> None:
    """Copy files into the folder of a landing source, all or none; one of the same name there is replaced.

    Files of outside series, known by their header, are copied into the folder `series`.
    Of a folder the files directly in it whose name and size the market reads are copied. Files that lie below
    `data/landing` already are left where they are.

    Raises:
        StorageError: if a file cannot be read, would be refused unread or ignored, two have the same name, or a folder
            holds none.
    """
    delivered: dict[str, LandedFile] = {}
    landing = home.landing.resolve()
    paths = [path for file in files for path in (_price_files(file) if file.is_dir() else [file])]
    for path in (path for path in paths if not path.resolve().is_relative_to(landing)):
        if path.name in delivered:
            raise StorageError(f"delivered files need different names, but two are named {path.name}; rename one")
        if _is_unfinished(Path(path.name)):
            raise StorageError(f"{path.name} has the name of a hidden or unfinished file; rename it")
        if not os.path.lexists(path):
            raise StorageError(f"{escape_name(path)} must be a file of prices, but does not exist; correct its path")
        file = _landed_file(path, escape_name(path))
        if file.refusal:
            raise StorageError(file.refusal.reason)
        delivered[path.name] = file
    for name, file in delivered.items():
        landed = landing_folder(home, SERIES if holds_series(file) else source) / name
        landed.parent.mkdir(exist_ok=True)
        if not (landed.is_file() and landed.read_bytes() == file.content):
            write_atomically(landed, file.content)


def is_series_file(path: Path) -> bool:
    """Whether a path is that of a file of outside series."""
    return path.is_file() and holds_series(_landed_file(path, path.name))


def _price_files(folder: Path) -> list[Path]:
    paths = (path for path in sorted(folder.iterdir()) if path.is_file() and not _is_unfinished(Path(path.name)))
    prices = [path for path in paths if early_refusal(path.name, path.stat().st_size) is None]
    if not prices:
        raise StorageError(f"{escape_name(folder)} must hold a file of prices, but holds none; correct its path")
    return prices


def _landed_file(path: Path, name: str) -> LandedFile:
    try:
        require_regular_file(path)
        refusal = early_refusal(name, path.stat().st_size)
        return LandedFile(name, b"", refusal) if refusal else LandedFile(name, path.read_bytes())
    except StorageError as error:
        return LandedFile(name, b"", UnreadableFile("irregular_file", str(error)))
    except OSError as error:
        reason = f"{name} cannot be read: {error.strerror}; make it readable, or remove it"
        return LandedFile(name, b"", UnreadableFile("irregular_file", reason))


def store_copies(home: Home, files: list[LandedFile]) -> None:
    """Store each content once in `warehouse/deliveries`, so no overwritten delivery is lost."""
    for file in (file for file in files if file.refusal is None):
        digest = hashlib.sha256(file.content).hexdigest()
        copy = home.deliveries / f"{digest}{Path(file.name).suffix}"
        if not copy.exists() or copy.stat().st_size != len(file.content):
            write_atomically(copy, file.content)


def landing_fingerprint(home: Home) -> str:
    """Digest of the names and contents of the landed files; empty if there are none."""
    state = hashlib.sha256()
    paths = landed_paths(home.landing)
    for path in paths:
        state.update(os.fsencode(path.relative_to(home.landing)))
        state.update(f"|{_content_state(path)}\n".encode())
    return state.hexdigest()[:32] if paths else ""


def _content_state(path: Path) -> str:
    """Digest of a file's content; size and time of one that cannot be read."""
    facts = path.stat() if path.exists() else path.lstat()  # a dangling symlink has no target
    if not (path.is_file() and os.access(path, os.R_OK)):
        return f"{facts.st_size} {facts.st_mtime_ns}"
    return _content_digest(path, (facts.st_size, facts.st_ino, facts.st_ctime_ns))


@lru_cache(maxsize=1 << 16)
def _content_digest(path: Path, state: tuple[int, ...]) -> str:  # noqa: ARG001 - part of the cache's key
    """Hash a file once per state: `cp -p` and `rsync -t` keep its time and change its ctime or inode."""
    return fingerprint(path)


def _is_unfinished(path: Path) -> bool:
    hidden = any(part.startswith((".", "~")) for part in path.parts)
    return hidden or path.name.endswith(("~", *UNFINISHED))
