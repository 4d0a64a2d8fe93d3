import io
import logging

import pytest

from nvtrader_pipelines.notifications.channels import Channel
from nvtrader_pipelines.notifications.message_delivery import MAX_BODY, DeliveryError, deliver
from tests.notifications.servers import PASSWORD, TOKEN


@pytest.fixture
def channel(monkeypatch):
    def of(url):
        monkeypatch.setenv("SOME_CHANNEL", url)
        return Channel(url_variable="SOME_CHANNEL")

    return of


@pytest.fixture
def logged():
    """Text of all log records that reach the root logger."""
    text, root = io.StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(text), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.removeHandler(handler)
    root.setLevel(level)


def problem(channel):
    with pytest.raises(DeliveryError) as caught:
        deliver(channel, "subject", "body")
    return str(caught.value)


def test_webhook_receives_subject_and_body(webhook):
    deliver(Channel(), "a plan\nwaits", "inspect it\nwith `nvtrader plans`")
    (message,) = webhook.messages
    assert (message["title"], message["message"]) == ("a plan waits", "inspect it\nwith `nvtrader plans`")
    assert webhook.paths == [f"/hooks/{TOKEN}"]


def test_mail_server_receives_subject_and_body(mail_server, channel):
    deliver(channel(mail_server.url()), "a plan waits", "inspect it\nwith `nvtrader plans`")
    (message,) = mail_server.messages
    assert (message["subject"], message["to"], message["from"]) == (
        "a plan waits",
        "ann@example.com",
        "nvtrader@example.com",
    )
    assert message.get_body(("plain",)).get_content().splitlines()[:2] == ["inspect it", "with `nvtrader plans`"]


def test_long_body_is_cut(webhook):
    deliver(Channel(), "subject", "x" * 10 * MAX_BODY)
    assert len(webhook.messages[0]["message"]) == MAX_BODY


def test_message_never_holds_url_or_secret_of_environment(webhook, monkeypatch):
    monkeypatch.setenv("APCA_API_SECRET_KEY", "correct-horse-battery")
    text = f"postgresql://ann:swordfish@db/ledger refused correct-horse-battery; {webhook.url}"
    deliver(Channel(), text, text)
    (message,) = webhook.messages
    assert message["title"] == message["message"] == "postgresql://*** refused ***; json://***"


@pytest.mark.parametrize("status", [401, 500])
def test_refused_message_raises_status_without_token(webhook, status, logged, capfd):
    webhook.status = status
    found = problem(Channel())
    assert f"error={status}" in found
    assert "$NVTRADER_NOTIFY_URL" in found
    assert TOKEN not in found + logged.getvalue() + "".join(capfd.readouterr())


def test_unreachable_server_raises_host_without_token(channel):
    found = problem(channel(f"json://127.0.0.1:9/{TOKEN}"))
    assert "127.0.0.1" in found
    assert TOKEN not in found


def test_wrong_password_of_mail_raises_without_it(mail_server, channel):
    found = problem(channel(mail_server.url("wrong-pass-phrase")))
    assert "127.0.0.1" in found
    assert "wrong-pass-phrase" not in found + PASSWORD
    assert mail_server.messages == []


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("", "is not set"),
        ("swordfish", "has no ://"),
        ("carrier-pigeon://swordfish", "carrier-pigeon:// is unknown or incomplete"),
        ("slack://swordfish", "slack:// is unknown or incomplete"),
        ("json://", "json:// is unknown or incomplete"),
    ],
)
def test_missing_or_invalid_url_raises_without_its_content(channel, url, part, capfd, logged):
    found = problem(channel(url))
    assert part in found
    assert "$SOME_CHANNEL" in found
    assert "swordfish" not in found + logged.getvalue() + "".join(capfd.readouterr())
