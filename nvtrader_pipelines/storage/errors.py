"""Errors of storage that a caller may want to catch."""


class StorageError(Exception):
    """Something on disk is not as it must be; the message says what to do."""


class OtherCodeError(StorageError):
    """A version of an experiment is not to this code what it was to the code that registered it."""
