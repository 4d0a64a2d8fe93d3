import pytest

from nvtrader_pipelines.orchestration.ui_web import refusal

HOST = "127.0.0.1:3000"


def status(method="POST", path="/graphql", kind="http", host=HOST, **headers: str) -> int:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in {"host": host, **headers}.items()]
    return refusal({"type": kind, "method": method, "path": path, "headers": raw})[0]


@pytest.mark.parametrize("host", [HOST, "localhost:3000", "localhost:4000", "127.0.0.1"])
def test_refusal_of_own_page_is_none(host):
    own = {"origin": f"http://{host}", "sec_fetch_site": "same-origin"}
    assert [status(host=host, **own), status(kind="websocket", host=host, **own)] == [0, 0]
    assert status("GET", "/", host=host, sec_fetch_site="cross-site") == 0  # a link on another page
    assert status("GET", accept="text/html", sec_fetch_site="none") == 0


def test_refusal_of_a_program_without_origin_is_none():
    assert status() == 0


@pytest.mark.parametrize(
    "host", ["evil.test", "127.0.0.1.evil.test", "localhost.evil.test:3000", "", "evil.test@localhost"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_refusal_of_another_host_is_misdirected(host, method):
    assert status(method, "/", host=host) == 421


@pytest.mark.parametrize(
    "headers",
    [
        *({"sec_fetch_site": site} for site in ("cross-site", "same-site")),
        *({"origin": origin} for origin in ("http://evil.test", "null", "http://localhost:3000", f"https://{HOST}")),
    ],
)
def test_refusal_of_another_page_is_forbidden(headers):
    assert status(**headers) == status("GET", **headers) == status(kind="websocket", **headers) == 403
    assert status(path="/report_asset_materialization/x", **headers) == 403


def test_refusal_of_an_operation_by_get_is_a_wrong_method():
    assert status("GET") == status("GET", sec_fetch_site="same-origin") == 405
    assert status("GET", "/graphql\n") == status("GET", "/graphql/") == 405
    assert status("GET", "/graphql\n", sec_fetch_site="cross-site") == 403
