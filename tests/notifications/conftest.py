"""Servers on this machine."""

from collections.abc import Iterator

import pytest

from tests.notifications.servers import MailServer, serve_mail


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    """A mail server that records messages."""
    with serve_mail() as server:
        yield server
