"""Errors of storage that a caller may want to catch."""


class StorageError(Exception):
    """Something on disk is not as it must be; the message says what to do."""
