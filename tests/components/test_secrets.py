import base64
import html
import json
from urllib.parse import quote

import pytest

from nvtrader_pipelines.components.secrets import hide_secrets

SECRET = "nvapi-a/B+c&\"d'9=é<\\𝄞"
FORMS = {
    "plain": lambda key: key,
    "json": json.dumps,
    "json of every character": lambda key: "".join(
        f"\\u{unit:04X}" for unit in memoryview(key.encode("utf-16-le")).cast("H")
    ),
    "json twice": lambda key: json.dumps(json.dumps(key)),
    "json of JavaScript": lambda key: json.dumps(key).replace("/", "\\/").replace("<", "\\u003C"),
    "url": quote,
    "url of every character": lambda key: "".join(f"%{byte:02x}" for byte in key.encode()),
    "url twice": lambda key: quote(quote(key, safe="")),
    "html": html.escape,
    "html by number": lambda key: "".join(f"&#{ord(letter)};" for letter in key),
    "html by hexadecimal number": lambda key: "".join(f"&#x{ord(letter):X};" for letter in key),
    "html twice": lambda key: html.escape(html.escape(key)),
    "bytes": lambda key: repr(key.encode()),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 for urls": lambda key: base64.urlsafe_b64encode(key.encode()).decode(),
    "base64 after one": lambda key: base64.b64encode(f":{key}".encode()).decode(),
    "base64 after two": lambda key: base64.b64encode(f"a:{key} b".encode()).decode(),
}


@pytest.mark.parametrize("secret", [SECRET, "nvapi-0123456789abcdef"])
@pytest.mark.parametrize("form", FORMS)
def test_secret_is_hidden_in_every_form(form, secret):
    shown = hide_secrets(f"the key {FORMS[form](secret)} is wrong", [secret])
    assert shown.startswith("the key ")
    assert shown.endswith(" is wrong")
    assert len(shown) <= len("the key b'' is wrong") + 11  # at most the ends of base64 that hold other bytes, too


@pytest.mark.parametrize("character", ["\\", "%25", "&amp;", "0"])
def test_hiding_in_a_long_text_of_escapes_ends(character):
    text = character * (1_000_000 // len(character))
    assert hide_secrets(f"{text}sk-abcdefgh", ["sk-abcdefgh"]) == f"{text}***"


def test_short_secret_and_other_text_stay():
    assert hide_secrets("run 3f2a: 100%25 &amp; \\u0041", ["run", SECRET]) == "run 3f2a: 100%25 &amp; \\u0041"
