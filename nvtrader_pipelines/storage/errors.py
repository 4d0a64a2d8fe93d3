"""Errors of storage that callers catch."""


class StorageError(Exception):
    """Problem with stored data or with a person's file; the message says what to do."""


class CodeMismatchError(StorageError):
    """Version of an experiment that this code reads differently from the code that registered it."""
