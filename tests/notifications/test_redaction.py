import pytest

from nvtrader_pipelines.notifications.redaction import redact, url_secrets


@pytest.mark.parametrize(
    ("url", "shown", "hidden"),
    [
        ("json://ann:swordfish@127.0.0.1:8080/hooks/T0KEN00", "127.0.0.1", ("swordfish", "T0KEN00")),
        ("slack://AAAAAAAAA/BBBBBBBBB/cccccccccccc/#general", "", ("AAAAAAAAA", "BBBBBBBBB", "cccccccccccc")),
        ("tgram://123456789:ABCdefGHI/987654321", "", ("123456789", "ABCdefGHI", "987654321")),
        ("mailto://ann:p%40ssw%C3%B6rd@mail.example.com", "mail.example.com", ("p%40ssw%C3%B6rd", "ssw\u00f6rd")),
        ("https://[broken/T0KEN00", "", ("T0KEN00",)),
    ],
)
def test_url_hides_all_but_the_host(url, shown, hidden):
    text = redact(f"refused by {shown}: {' '.join(hidden)}", url_secrets(url))
    assert shown in text
    assert not any(each in text for each in hidden)


def test_sentence_without_secret_stays(monkeypatch):
    monkeypatch.setenv("EMPTY_TOKEN", "")
    monkeypatch.setenv("SHORT_KEY", "run")
    assert redact("run 3f2a failed at 22:00 UTC; run it again") == "run 3f2a failed at 22:00 UTC; run it again"
