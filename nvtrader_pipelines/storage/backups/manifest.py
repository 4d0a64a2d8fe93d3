"""Manifest of a backup, the last file in it."""

from collections.abc import Callable
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

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
