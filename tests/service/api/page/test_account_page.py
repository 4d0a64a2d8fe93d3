"""Page of an account, over HTTP and in Chromium."""

import io
from datetime import date

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import expect

from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.evaluation.formats import number
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.service.api.page import account_pages
from nvtrader_pipelines.service.python_api import Pipeline
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import CLEAN_BARS, FEATURES, FILLS, MARKET_PANEL, PORTFOLIO_STATE, RETURNS
from nvtrader_pipelines.storage.views.publishing import publish
from tests.homes import copy_home
from tests.service.api.conftest import AUTHORIZED, client_of
from tests.service.api.page.test_browser import LOOKS, axe_findings
from tests.service.api.servers import served

pytestmark = pytest.mark.slow
PARTS = ("positions", "days", "months", "orders", "plans")


@pytest.fixture(scope="module")
def traded(built_home, tmp_path_factory):
    """Home whose account has traded for a third of a year."""
    home = copy_home(built_home, tmp_path_factory.mktemp("traded") / "home")
    client = client_of(home)
    name = client.get("/api/nemorl/policies").json()["policies"][0]["policy"]
    client.post("/api/nemorl/policies/activate", json={"policy": name}, headers=AUTHORIZED)
    desk = Desk(Store(home), by="ann")
    drain(desk.trade(date(2017, 1, 10), date(2017, 4, 28), acknowledge=True))
    desk.mirror()
    publish(Store(home))
    return home


@pytest.fixture(scope="module")
def traded_url(traded, fast_nvtrader):
    """Service of that home, only to be read."""
    with served(traded, command=fast_nvtrader) as (_, url, _):
        yield url


@pytest.fixture(scope="module")
def page(traded):
    """Page of the account."""
    return client_of(traded).get("/accounts/paper").text


def test_figures_of_page_document_route_csv_and_sql_are_equal(traded, page):
    client, pipeline = client_of(traded), Pipeline(traded.root, quiet=True)
    snapshot, history = pipeline.accounts.show(), pipeline.accounts.history()
    assert client.get("/api/portfolio/history").json() == history.model_dump(mode="json")
    for part in PARTS:
        rows = pl.read_csv(io.StringIO(client.get(f"/accounts/paper/{part}.csv").text))
        assert len(rows) == len(getattr(snapshot if part == "positions" else history, part)) > 0
    for position in snapshot.positions:
        assert f'<th scope="row">{position.symbol}</th>' in page
        for value in (number(position.value), number(position.profit, sign=True)):
            assert value in page
    for month in history.months:
        assert number(month.profit, sign=True) in page
    fees, value = f"SELECT sum(cost) FROM {FILLS.name}", f"SELECT arg_max(value, session) FROM {PORTFOLIO_STATE.name}"
    assert pipeline.sql(fees).item() == pytest.approx(sum(order.fees for order in history.orders))
    assert f"{number(pipeline.sql(value).item())} USD" in page
    assert number(history.activity.sharpe) in page


def test_long_table_has_its_newest_rows_and_a_link_to_all(traded, monkeypatch):
    monkeypatch.setattr(account_pages, "MAX_ROWS", 5)
    orders = Pipeline(traded.root, quiet=True).accounts.history().orders
    text = client_of(traded).get("/accounts/paper").text.partition('id="orders"')[2].partition('id="plans"')[0]
    assert text.count('scope="row"') == 5
    assert f"The last 5 of {len(orders)}" in text
    assert 'href="/accounts/paper/orders.csv"' in text


def test_plot_of_an_account_has_equity_references_and_drawdown_of_the_page(traded):
    curves = Pipeline(traded.root).accounts.curves()
    served = client_of(traded).get("/api/portfolio/curves").json()
    equity, losses, *references = curves.plot().data
    assert list(equity.y) == served["equity"]["account"] == curves.frame()["account"].to_list()
    assert np.abs(losses.y).tolist() == served["drawdown"]
    assert [trace.name for trace in references[::2]] == ["back_test", "equal_weight"]


def test_account_that_never_traded_says_how_it_begins(client):
    answer = client.get("/accounts/paper")
    assert answer.status_code == 200
    assert "nvtrader trade --account paper" in answer.text
    assert client.get("/api/portfolio/curves").status_code == 404
    assert client.get("/accounts/paper/orders.csv").text.startswith("session,symbol,side")


@pytest.mark.parametrize("name", ["none", "<img src=x>", "..%2f..%2fetc", "%00"])
def test_unknown_account_is_a_page_that_says_so(traded, name):
    answer = client_of(traded).get(f"/accounts/{name}")
    assert answer.status_code == 404
    assert "<img src=x>" not in answer.text


def test_account_that_cannot_be_read_is_a_page_with_the_reason(traded, tmp_path):
    home = copy_home(traded, tmp_path / "home")
    home.accounts.mkdir(exist_ok=True)
    (home.accounts / "paper.yaml").write_text("kind: nothing\n")
    answer = client_of(home).get("/accounts/paper")
    assert answer.status_code == 503
    assert "paper.yaml" in answer.text


def test_account_of_a_market_that_is_gone_keeps_its_past(traded, page, tmp_path):
    home = copy_home(traded, tmp_path / "home")
    store = Store(home)
    for table in (CLEAN_BARS, RETURNS, FEATURES, MARKET_PANEL):
        store.tables.replace(table, to_frame(table, []), {})
    client = client_of(home)
    assert client.get("/accounts/paper").text == page
    assert client.get("/api/portfolio/curves").json()["missing"]
    assert client.get("/accounts/paper/names/AAA").status_code == 404


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_page_of_an_account_is_accessible_and_never_scrolls_sideways(look, traded_url, scheme, width):
    page = look(traded_url, "/accounts/paper", width=width, scheme=scheme)
    for chart in ("account", "profit", "name"):
        page.locator(f"#plot-{chart}").scroll_into_view_if_needed()
        expect(page.locator(f"#plot-{chart} .main-svg").first).to_be_attached()
    assert axe_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.locator("#name").focus()
    chosen = page.locator("#key-name").text_content()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#key-name")).not_to_have_text(chosen)


def test_page_and_the_table_of_all_plans_lead_to_the_account(look, traded, traded_url):
    page = look(traded_url)
    page.locator(".ticker[data-account=paper]").get_by_role("link").first.click()
    expect(page.locator("#account-h")).to_contain_text("USD")
    page.get_by_role("link", name="Continuous RL").first.click()
    page.get_by_role("link", name="All plans").click()
    plans = Pipeline(traded.root, quiet=True).accounts.history().plans
    expect(page.locator("#numbers tbody tr")).to_have_count(len(plans))
    expect(page.locator("#numbers tbody tr").first).to_contain_text(plans[0].plan_id)
    assert axe_findings(page) == []
    page.locator("#numbers").get_by_role("link", name="paper").first.click()
    expect(page.locator("#account-h")).to_contain_text("USD")
