"""Channels of a home: `data/notifications.yaml`, with the URLs in environment variables."""

import os
import re

from pydantic import Field, ValidationError, field_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.notifications.notification import KINDS, Kind
from nvtrader_pipelines.notifications.redaction import redact
from nvtrader_pipelines.storage.documents import read_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home

DEFAULT_VARIABLE = "NVTRADER_NOTIFY_URL"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Channel(Component):
    """Receiver of notifications; its URL holds secrets, so only the environment has it."""

    url_variable: str = DEFAULT_VARIABLE  # environment variable with an Apprise URL
    kinds: tuple[Kind, ...] = Field(default=KINDS, min_length=1)

    @field_validator("url_variable")
    @classmethod
    def _require_name(cls, name: str) -> str:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(  # without the value, which may be a URL with a token
                "must be the name of an environment variable, such as NVTRADER_NOTIFY_URL; a URL holds secrets, so "
                "export it under that name"
            )
        return name

    @property
    def url(self) -> str:
        """URL of the environment; empty if there is none."""
        return os.environ.get(self.url_variable, "").strip()


class NotificationSettings(Component):
    """Content of `data/notifications.yaml`."""

    channels: dict[str, Channel] = Field(min_length=1)


def has_channels(home: Home) -> bool:
    """Whether notifications are configured, validly or not."""
    return os.path.lexists(home.notifications_file) or bool(Channel().url)


def read_channels(home: Home) -> dict[str, Channel]:
    """Read the channels by name; without a file, one for $NVTRADER_NOTIFY_URL if that is set.

    Raises:
        StorageError: if the file is not valid.
    """
    path = home.notifications_file
    if not os.path.lexists(path):  # a dangling symlink is an error, not a missing file
        return {"default": Channel()} if Channel().url else {}
    document = read_document(path)
    try:
        return NotificationSettings.model_validate(document).channels
    except ValidationError as error:
        problem = redact(explain(error, NotificationSettings, document.written))
        raise StorageError(f"{path.name} is not a valid list of channels: {problem}") from None  # it has the values


def require_channels(home: Home) -> dict[str, Channel]:
    """Read the channels by name.

    Raises:
        StorageError: if the file is not valid, or there is neither a file nor the variable.
    """
    channels = read_channels(home)
    if not channels:
        raise StorageError(
            f"notifications need a channel, but there is neither {home.notifications_file} nor "
            f"${DEFAULT_VARIABLE}; export an Apprise URL, such as {DEFAULT_VARIABLE}=json://HOST:PORT/PATH"
        )
    return channels
