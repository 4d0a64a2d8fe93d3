"""Delivery of a message to a channel by Apprise: webhooks, e-mail and chat services."""

import logging

from nvtrader_pipelines.notifications.channels import Channel
from nvtrader_pipelines.notifications.redaction import redact, url_secrets

MAX_BODY = 3000  # characters; Telegram accepts 4096
SENDER = "nvtrader"
_NO_OUTPUT = logging.NullHandler()  # without a handler Python prints warnings to stderr


class DeliveryError(Exception):
    """Message that a channel did not accept; the sentence says what to do and holds no secret."""


def deliver(channel: Channel, subject: str, body: str) -> None:
    """Send a message to a channel; it takes at most about 15 seconds.

    Raises:
        DeliveryError: if the channel has no valid URL, or the server does not accept the message.
    """
    variable, url = channel.url_variable, channel.url
    if not url:
        raise DeliveryError(f"${variable} must hold the URL of the channel, but is not set; export it")
    _silence()
    import apprise  # takes a third of a second; needed only when something is sent

    service = apprise.Apprise(asset=apprise.AppriseAsset(app_id=SENDER, app_desc=SENDER))
    if not service.add(url):
        raise DeliveryError(_invalid_url(variable, url))
    result = service.notify(
        title=redact(" ".join(subject.split())),
        body=redact(body)[:MAX_BODY],
        body_format=apprise.NotifyFormat.TEXT,
        log_level=logging.WARNING,
    )
    if not result:
        reasons = dict.fromkeys(entry.message.rstrip(".") for entry in result.logs())
        reason = redact("; ".join(reasons) or "the server did not accept the message", url_secrets(url))
        raise DeliveryError(
            f"{reason}; check host, port, user, password or token in ${variable}, then `nvtrader notify --test`"
        )


def _silence() -> None:
    """Keep records with parts of URLs from consoles, files and Dagster."""
    for name, level in {"apprise": logging.WARNING, "urllib3": logging.INFO}.items():  # lower levels show the path
        logging.getLogger(name).setLevel(level)
    log = logging.getLogger("apprise")
    log.propagate = False
    log.addHandler(_NO_OUTPUT)


def _invalid_url(variable: str, url: str) -> str:
    scheme, separator, _ = url.partition("://")
    found = f"its URL of the kind {scheme}:// is unknown or incomplete" if separator else "it has no ://"
    return (
        f"${variable} must hold an Apprise URL such as json://HOST:PORT/PATH or mailto://USER:PASSWORD@HOST, but "
        f"{found}; correct it"
    )
