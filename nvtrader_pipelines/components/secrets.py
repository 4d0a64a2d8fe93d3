"""Hiding of secrets in text, as they are or as a server writes them back."""

import base64
import re
from collections.abc import Iterable
from functools import lru_cache
from html.entities import codepoint2name

HIDDEN = "***"
MIN_SECRET = 6  # characters; shorter ones, as keys of local servers, occur in ordinary words


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Hide secrets, also those that are escaped for JSON, URLs or HTML, or are part of base64."""
    for secret in sorted({secret for secret in secrets if len(secret) >= MIN_SECRET}, key=len, reverse=True):
        text = _pattern(secret).sub(HIDDEN, text)
    return text


@lru_cache(maxsize=64)
def _pattern(secret: str) -> re.Pattern[str]:
    """Pattern of a secret in any of its forms."""
    content = secret.encode(errors="replace")
    return re.compile("|".join(["".join(map(_character, secret)), *map(re.escape, _base64_forms(content))]))


def _character(character: str) -> str:
    """Pattern of a character as it is or escaped, also repeatedly: at most eight times, so a search is linear."""
    code = ord(character)
    units = character.encode("utf-16-be", errors="replace").hex()
    forms = [
        rf"\\{{0,8}}{re.escape(character)}" if character in "/\"'\\" else re.escape(character),
        "".join(rf"\\{{1,8}}u(?i:{units[i : i + 4]})" for i in range(0, len(units), 4)),
        "".join(rf"(?:%(?:25){{0,8}}|\\{{1,8}}x)(?i:{byte:02x})" for byte in character.encode(errors="replace")),
        rf"&(?:amp;){{0,8}}#(?:0{{0,8}}{code}|[xX]0{{0,8}}(?i:{code:x}));",
    ]
    name = {39: "apos"}.get(code, codepoint2name.get(code))
    return f"(?:{'|'.join([*forms, *([f'&(?:amp;){{0,8}}{name};'] if name else [])])})"


def _base64_forms(content: bytes) -> set[str]:
    """Characters of base64 that hold nothing but these bytes, at each offset of three."""
    forms: set[str] = set()
    for offset in range(3):
        padded = bytes(offset) + content
        first, end = -(-offset * 8 // 6), len(padded) * 8 // 6
        forms |= {encode(padded).decode()[first:end] for encode in (base64.b64encode, base64.urlsafe_b64encode)}
    return forms
