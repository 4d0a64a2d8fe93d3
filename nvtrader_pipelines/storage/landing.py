"""The landing zone: what vendors delivered, read but never rewritten, and kept by digest."""

import hashlib
from pathlib import Path

from nvtrader_pipelines.market.sources import LandedFile
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home

UNFINISHED = (".tmp", ".part", ".partial", ".crdownload", ".swp")


def landed_paths(home: Home) -> list[Path]:
    """The files in `data/landing` and its folders, without those still being written or hidden."""
    found = (path for path in home.landing.rglob("*") if path.is_file())
    return sorted(path for path in found if not _unfinished(path.relative_to(home.landing)))


def landed_files(home: Home) -> list[LandedFile]:
    """The landed files with their content, named relative to `data/landing`."""
    return [LandedFile(path.relative_to(home.landing).as_posix(), path.read_bytes()) for path in landed_paths(home)]


def keep_copies(home: Home, files: list[LandedFile]) -> None:
    """Keep each content once under `warehouse/deliveries`, so that an overwritten delivery is not lost."""
    for file in files:
        digest = hashlib.sha256(file.content).hexdigest()
        copy = home.deliveries / f"{digest}{Path(file.name).suffix}"
        if not copy.exists():
            write_atomically(copy, file.content)


def fingerprint(home: Home) -> str:
    """A digest of the landed files' names, sizes and times; empty where nothing has landed."""
    state = hashlib.sha256()
    paths = landed_paths(home)
    for path in paths:
        facts = path.stat()
        state.update(f"{path.relative_to(home.landing)}|{facts.st_size}|{facts.st_mtime_ns}\n".encode())
    return state.hexdigest()[:32] if paths else ""


def _unfinished(path: Path) -> bool:
    hidden = any(part.startswith((".", "~")) for part in path.parts)
    return hidden or path.name.endswith(("~", *UNFINISHED))
