"""Errors of storage that callers catch."""

from pathlib import Path

MAX_CANDIDATES = 5  # ids in a message


class StorageError(Exception):
    """Problem with stored data or with a person's file; the message says what to do."""


class NameTakenError(StorageError):
    """Name that is registered for a version of another kind."""


class NotFoundError(StorageError):
    """Name of something that does not exist, or the beginning of several names."""


class ConflictError(StorageError):
    """State of a home that forbids what is asked for."""


class DamagedFileError(StorageError):
    """File of a home that is empty, torn or missing."""

    def __init__(self, path: Path | str, problem: str, remedy: str) -> None:
        """Name the file, its problem and the remedy, both as parts of a sentence."""
        super().__init__(f"{path} {problem}; {remedy}")
        self.path, self.problem, self.remedy = path, problem, remedy


class UnavailableError(StorageError):
    """Service beside the home that does not answer now, such as a UI that starts, or a database."""


class CodeMismatchError(StorageError):
    """Version of an experiment that this code reads differently from the code that registered it."""
