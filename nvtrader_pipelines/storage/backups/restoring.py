"""Restore a backup: every file is verified before the home appears under its name."""

import hashlib
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import require_new_folder
from nvtrader_pipelines.storage.home import Home

MANIFEST_NAME = "backup.json"
OnFile = Callable[[str, int], None]  # called with the name and the bytes of every file


class BackupManifest(BaseModel):
    """Content of a backup."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: Literal[1] = 1
    version: str  # of the package that wrote it
    created_at: AwareDatetime
    root: str  # of the home
    outside: tuple[str, ...]  # parts of the home that the backup lacks
    files: dict[str, str]  # SHA-256 by path below the root


def restore_backup(file: Path, folder: Path, on_file: OnFile) -> BackupManifest:
    """Restore a backup as a new home; if it fails, the folder stays as it was.

    Raises:
        StorageError: if the folder holds files or lies below a file, or the file is missing, damaged or no backup.
    """
    if not file.is_file():
        found = "a folder" if file.is_dir() else "a device" if file.exists() else "missing"
        raise StorageError(f"a backup must be a file that `nvtrader backup` wrote, but {file} is {found}; name another")
    require_new_folder(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        aside.mkdir()
        _extract(file, aside, on_file)
        manifest = _verify(file, aside)
        aside.replace(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return manifest


def _extract(file: Path, aside: Path, on_file: OnFile) -> None:
    try:
        with tarfile.open(file) as tar:
            for member in tar:
                _extract_file(tar, member, aside)
                on_file(member.name, member.size)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        reason = "no tar file can be read from it" if isinstance(error, tarfile.ReadError) else error
        raise StorageError(f"{file} is no backup, or is damaged or incomplete: {reason}; use another copy") from error


def _extract_file(tar: tarfile.TarFile, member: tarfile.TarInfo, aside: Path) -> None:
    """Extract a regular file below a folder; Python before 3.11.4 has no filters for `TarFile.extract`."""
    path, content = aside / member.name, tar.extractfile(member) if member.isreg() else None
    if content is None or not path.resolve().is_relative_to(aside.resolve()):
        raise tarfile.TarError(f"{member.name!r} is no file of a home")
    path.parent.mkdir(parents=True, exist_ok=True)
    with content, path.open("wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)


def _verify(file: Path, aside: Path) -> BackupManifest:
    """Compare every file with the manifest, which is removed."""
    try:
        manifest = BackupManifest.model_validate_json((aside / MANIFEST_NAME).read_bytes())
    except (FileNotFoundError, ValidationError) as error:
        raise StorageError(f"{file} is no backup of nvtrader: it lacks a valid {MANIFEST_NAME}") from error
    (aside / MANIFEST_NAME).unlink()
    Home(aside).landing.mkdir(parents=True, exist_ok=True)  # a tar of files has no empty folders
    found = {path.relative_to(aside).as_posix(): _digest(path) for path in aside.rglob("*") if path.is_file()}
    differing = sorted(name for name in found | manifest.files if found.get(name) != manifest.files.get(name))
    if differing:
        raise StorageError(
            f"{file} is damaged: {len(differing)} files differ from its manifest, the first is {differing[0]}; use "
            "another copy"
        )
    return manifest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
