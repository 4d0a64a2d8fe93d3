"""Text: what people write, short ids, sentences on symbols, and flags of options."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated
from unicodedata import category

from pydantic import AfterValidator, Field

ID_LENGTH = 16  # hexadecimal digits of a SHA-256: of runs, plans, events and judgements
N_NAMED = 5  # symbols of a sentence; the rest is counted


def short_id(digest: str) -> str:
    """First digits of an id or a digest, for names and messages."""
    return digest[:8]


def _require_plain(text: str) -> str:
    """Refuse characters that control a terminal."""
    if any(category(letter) == "Cc" and letter not in "\t\n\r" for letter in text):
        raise ValueError("must have no control characters but tabs and line ends; remove them")
    return text


Text = Annotated[str, Field(max_length=1000), AfterValidator(_require_plain)]
Symbols = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=32)], ...], Field(max_length=1000)]
Reason = Annotated[Text, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]  # of what files and tables name
RunId = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{ID_LENGTH}}}$")]


@dataclass(frozen=True)
class Flags:
    """Flags of a command's option that is not named after its parameter."""

    names: tuple[str, ...]


def name_symbols(symbols: Sequence[str]) -> str:
    """Name one symbol, or count several and name the first ones."""
    if len(symbols) == 1:
        return symbols[0]
    more = f" and {len(symbols) - N_NAMED} more" if len(symbols) > N_NAMED else ""
    return f"{len(symbols)} symbols ({', '.join(symbols[:N_NAMED])}{more})"


def group_by_message(messages: Iterable[tuple[str, str]]) -> list[str]:
    """Write a sentence per distinct message, with its symbols in front."""
    symbols: dict[str, list[str]] = {}
    for symbol, message in messages:
        symbols.setdefault(message, []).append(symbol)
    return [f"{name_symbols(names)}: {message}" for message, names in symbols.items()]
