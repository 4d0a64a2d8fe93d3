"""Redaction of secrets in messages: URLs, their parts, and secrets of the environment."""

import os
import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from nvtrader_pipelines.components.secrets import HIDDEN, hide_secrets

_URL = re.compile(r"\b([a-z][a-z0-9+.-]*)://[^\s'\"`]+", re.IGNORECASE)
_SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSW|CREDENTIAL", re.IGNORECASE)
_SEPARATORS = re.compile(r"[/:@?&=#,;\s]+")


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Hide URLs, the given secrets and values of environment variables with a secret's name."""
    of_environment = (value for name, value in os.environ.items() if _SECRET_NAME.search(name))
    return _URL.sub(rf"\1://{HIDDEN}", hide_secrets(text, (*secrets, *of_environment)))


def url_secrets(url: str) -> set[str]:
    """Parts of a channel's URL that a message must not show: all but the name of its host."""
    parts = {part for form in (url, unquote(url)) for part in _SEPARATORS.split(form)}
    return parts - {_host(url)}


def _host(url: str) -> str:
    """Host of a URL; empty where a token stands in its place."""
    try:
        host = urlsplit(url.strip()).hostname or ""
    except ValueError:
        return ""
    return host if "." in host or host == "localhost" else ""
