"""Marks of parameters and fields, for the command line."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Flags:
    """Flags of a command's option that is not named after its parameter."""

    names: tuple[str, ...]
