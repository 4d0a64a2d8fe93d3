"""Lengths of ids, which are the first hexadecimal digits of a SHA-256."""

ID_LENGTH = 16  # of runs, plans, events and judgements


def short_id(digest: str) -> str:
    """First digits of an id or a digest, for names and messages."""
    return digest[:8]
