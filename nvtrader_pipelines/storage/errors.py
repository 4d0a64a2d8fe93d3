"""Errors of storage that callers catch."""

from pathlib import Path


class StorageError(Exception):
    """Problem with stored data or with a person's file; the message says what to do."""


class DamagedFileError(StorageError):
    """File that must be a SQLite database, but is damaged."""

    def __init__(self, path: Path) -> None:
        """Name the file and the remedy."""
        super().__init__(f"{path} must be a SQLite database, but is damaged; restore the home from a backup")


class CodeMismatchError(StorageError):
    """Version of an experiment that this code reads differently from the code that registered it."""
