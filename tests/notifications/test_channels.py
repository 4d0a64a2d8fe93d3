import pytest

from nvtrader_pipelines.notifications.channels import Channel, has_channels, read_channels, require_channels
from nvtrader_pipelines.notifications.notification import KINDS
from nvtrader_pipelines.storage.errors import StorageError


def write(home, text):
    home.notifications_file.write_text(text)


def test_home_without_file_and_variable_has_no_channel(home):
    assert not has_channels(home)
    assert read_channels(home) == {}
    with pytest.raises(StorageError):
        require_channels(home)


def test_variable_alone_is_the_default_channel_of_all_kinds(home, monkeypatch):
    monkeypatch.setenv("NVTRADER_NOTIFY_URL", "json://127.0.0.1/hook\n")
    assert has_channels(home)
    (channel,) = require_channels(home).values()
    assert (channel.url, channel.kinds) == ("json://127.0.0.1/hook", KINDS)


def test_file_names_channels_with_variables_and_kinds(home, monkeypatch):
    monkeypatch.setenv("DESK_MAIL", "mailto://example.com")
    write(home, "channels:\n  desk: {url_variable: DESK_MAIL, kinds: [waiting_plan]}\n  all: {url_variable: OTHER}\n")
    channels = read_channels(home)
    assert channels["desk"] == Channel(url_variable="DESK_MAIL", kinds=("waiting_plan",))
    assert (channels["desk"].url, channels["all"].url) == ("mailto://example.com", "")


@pytest.mark.parametrize(
    "text",
    [
        "channels: {desk: {url_variable: 'slack://swordfish/token'}}",
        "channels: {desk: {url: 'slack://swordfish/token'}}",
        "channels: {desk: 'slack://swordfish/token'}",
        "channels: ['slack://swordfish/token']",
        "channels: {desk: {kinds: ['slack://swordfish/token']}}",
        "channels: {desk: {kinds: []}}",
        "channels: {}",
        "",
    ],
)
def test_invalid_file_is_refused_without_a_url_of_it(home, text):
    write(home, text)
    with pytest.raises(StorageError) as caught:
        read_channels(home)
    assert "notifications.yaml" in str(caught.value)
    assert "swordfish" not in str(caught.value)
    assert caught.value.__cause__ is None
