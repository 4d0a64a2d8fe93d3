"""Text that people write."""

from typing import Annotated
from unicodedata import category

from pydantic import AfterValidator, Field


def _require_plain(text: str) -> str:
    """Refuse characters that control a terminal."""
    if any(category(letter) == "Cc" and letter not in "\t\n\r" for letter in text):
        raise ValueError("must have no control characters but tabs and line ends; remove them")
    return text


Text = Annotated[str, Field(max_length=1000), AfterValidator(_require_plain)]
Symbols = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=32)], ...], Field(max_length=1000)]
Reason = Annotated[Text, Field(min_length=1)]
