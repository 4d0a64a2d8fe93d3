"""Landing zone: files delivered by vendors, read but never rewritten, and copied by digest."""

import hashlib
from pathlib import Path

from nvtrader_pipelines.market.sources import LandedFile
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home

UNFINISHED = (".tmp", ".part", ".partial", ".crdownload", ".swp")


def landed_paths(home: Home) -> list[Path]:
    """List the files below `data/landing`, except hidden ones and those still being written."""
    found = (path for path in home.landing.rglob("*") if path.is_file())
    return sorted(path for path in found if not _is_unfinished(path.relative_to(home.landing)))


def landed_files(home: Home) -> list[LandedFile]:
    """Read the landed files, named relative to `data/landing`."""
    return [LandedFile(path.relative_to(home.landing).as_posix(), path.read_bytes()) for path in landed_paths(home)]


def store_copies(home: Home, files: list[LandedFile]) -> None:
    """Store each content once in `warehouse/deliveries`, so no overwritten delivery is lost."""
    for file in files:
        digest = hashlib.sha256(file.content).hexdigest()
        copy = home.deliveries / f"{digest}{Path(file.name).suffix}"
        if not copy.exists() or copy.stat().st_size != len(file.content):
            write_atomically(copy, file.content)


def landing_fingerprint(home: Home) -> str:
    """Digest of the names, sizes and times of the landed files; empty if there are none."""
    state = hashlib.sha256()
    paths = landed_paths(home)
    for path in paths:
        facts = path.stat()
        state.update(f"{path.relative_to(home.landing)}|{facts.st_size}|{facts.st_mtime_ns}\n".encode())
    return state.hexdigest()[:32] if paths else ""


def _is_unfinished(path: Path) -> bool:
    hidden = any(part.startswith((".", "~")) for part in path.parts)
    return hidden or path.name.endswith(("~", *UNFINISHED))
