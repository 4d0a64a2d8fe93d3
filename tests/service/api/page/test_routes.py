import re
from importlib.resources import files

import pytest

from nvtrader_pipelines.service.api.page import routes
from nvtrader_pipelines.service.api.page.routes import PLOTLY
from tests.homes import small_home
from tests.service.api.conftest import TOKEN, client_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(client):
    """Page of the shared home."""
    return client.get("/continuous-rl.html")


def test_page_names_its_own_files_only(page):
    assert page.status_code == 200
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert {address for address in addresses if "//" in address} == {"http://127.0.0.1:5000"}  # MLflow's, a link
    assert not re.search(r"<script>|\son\w+=|style=", page.text)


def test_policy_of_the_page_allows_scripts_of_the_service_only(page):
    policy = dict(rule.strip().partition(" ")[::2] for rule in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'self'"
    assert "script-src" not in policy


@pytest.mark.parametrize("name", ["continuous-rl.css", "continuous-rl.js", "icon.svg"])
def test_files_of_the_page_are_sent(client, page, name):
    assert f"/page/{name}" in page.text
    assert client.get(f"/page/{name}").status_code == 200


def test_plotly_is_sent_compressed_from_the_package(client, page):
    assert f'data-plotly="/page/{PLOTLY}"' in page.text
    script = client.get(f"/page/{PLOTLY}")
    assert script.headers["content-encoding"] == "gzip"
    assert script.content == (files("plotly") / "package_data" / "plotly.min.js").read_bytes()


@pytest.mark.parametrize("name", ["../routes.py", "..%2froutes.py", "page.html.j2", "none.js", ".", "%00.js"])
def test_other_files_are_not_found(client, name):
    assert client.get(f"/page/{name}").status_code == 404


def test_page_of_an_empty_home_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(routes, "FIRST_SECONDS", 10.0)  # this machine may be busy
    page = client_of(small_home(tmp_path / "home")).get("/continuous-rl.html")
    assert page.status_code == 200
    for command in ("ingest", "research start", "train", "materialize", "plans"):
        assert f"<code>nvtrader {command}" in page.text


@pytest.mark.parametrize("path", ["/continuous-rl.html", "/lab", "/lab/runs/none"])
@pytest.mark.parametrize(("token", "is_locked"), [("", True), ("wrong", True), (TOKEN, False)])
def test_page_is_locked_without_the_token_of_the_start(home, path, token, is_locked):
    page = client_of(home, cookies={"nvtrader-8000": token}).get(path)
    (band,) = re.findall(r'<form class="band lost" id="locked" action="/" aria-label="Unlock"(.*?)>', page.text)
    assert (band == "") == is_locked


def test_report_is_shown(client):
    report = client.get("/report")
    assert report.status_code == 200
    assert "default-src 'self'" in report.headers["content-security-policy"]
    assert 'href="/continuous-rl.html"' in report.text


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/api/plans", 200),
        ("/api/nemorl-autoresearch/journal/abc", 200),
        ("/rl/runs/abc/equity?limit=5", 200),
        ("/lab", 404),
        ("//elsewhere.example/api/plans", 404),
        ("https://elsewhere.example", 404),
        ("/api/nemorl/train", 404),
        ('"><script>alert(1)</script>', 404),
    ],
)
def test_numbers_are_shown_of_routes_that_read_only(client, address, status):
    page = client.get("/numbers", params={"of": address})
    assert page.status_code == status
    assert ('id="numbers"' in page.text) == (status == 200)
    assert "<script>alert" not in page.text
