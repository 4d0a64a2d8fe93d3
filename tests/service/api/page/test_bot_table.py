"""Table of the bots on the page, and the switch of each, in Chromium too."""

import re
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from nvtrader_pipelines.desk.halt import stop_trading
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.sections.bots import read_bot_table
from nvtrader_pipelines.service.api.page.sections.desk import read_account_on_page, read_desk
from nvtrader_pipelines.service.operations.bots import Bots
from nvtrader_pipelines.storage.read_sources import is_unchanged, recording
from nvtrader_pipelines.storage.store import Store
from tests.homes import copy_home
from tests.service.api.conftest import client_of
from tests.service.api.page.test_browser import LOOKS, MARKUP, axe_findings

BOTS = {"coins": "tiny", "stocks": "tiny/seed-0"}  # policy of each bot, which trades the account of its name


@pytest.fixture(scope="module")
def started(built_home, tmp_path_factory):
    """Home with two bots that a person started; read it, never write it."""
    home = copy_home(built_home, tmp_path_factory.mktemp("bots") / "home")
    home.accounts.mkdir(exist_ok=True)
    home.bots.mkdir()
    for name, policy in BOTS.items():
        (home.accounts / f"{name}.yaml").write_text("kind: simulated\n")
        (home.bots / f"{name}.yaml").write_text(f"policy: {policy}\naccount: {name}\n")
        Bots(context_of(home).opened).start(name, reason="tested")
    return home


@pytest.fixture
def home(started, tmp_path):
    return copy_home(started, tmp_path / "home")


def context_of(home):
    return Context(Store(home), "ann")


def bot_table(home):
    return read_bot_table(context_of(home)).parts["bots"]


def table(home):
    rows = re.findall(r'data-key="bot-(.*?)".*?class="chip (\w+)">\2<(.*?)</tr>', bot_table(home), re.DOTALL)
    return {name: (state, re.findall(r'data-action="(\w+)"', row)) for name, state, row in rows}


def test_states_and_actions_follow_the_switch_of_each_bot(home):
    bots = Bots(context_of(home).opened)
    assert table(home) == dict.fromkeys(BOTS, ("active", ["reduce", "stop"]))
    bots.reduce("coins")
    bots.stop("stocks")
    assert table(home) == {"coins": ("reducing", ["start", "stop"]), "stocks": ("halted", ["start"])}
    bots.start("stocks")
    (home.bots / "coins.yaml").write_text("policy: tiny/seed-1\naccount: coins\n")
    assert table(home) == {"coins": ("stopped", ["start"]), "stocks": ("active", ["reduce", "stop"])}


def test_actions_change_something_while_all_accounts_are_halted(home):
    Bots(context_of(home).opened).reduce("coins")
    stop_trading(Store(home), "ann", MARKUP[0], now)
    assert table(home) == {"coins": ("halted", ["start", "stop"]), "stocks": ("halted", ["reduce", "stop"])}
    assert MARKUP[0].replace("<", "&lt;").replace(">", "&gt;") in bot_table(home)


def test_home_without_bots_says_what_to_write(built_home):
    assert "data/bots/README.md" in bot_table(built_home)


@pytest.mark.parametrize(("name", "problem"), [("coins", "limit: "), (MARKUP[0], "rename it")])
def test_bot_file_that_cannot_be_used_shows_its_problem_alone(home, name, problem):
    (home.bots / f"{name}.yaml").write_text("policy: tiny\naccount: coins\nlimit: 1\n")
    assert problem in bot_table(home)
    assert table(home)["stocks"] == ("active", ["reduce", "stop"])
    assert [*table(home).values()].count(("stopped", ["stop"] if name == "coins" else [])) == 1
    assert "<img" not in bot_table(home)
    assert read_desk(context_of(home)).parts["ticker"].count("cannot be read") == (name == "coins")


def test_policy_of_an_account_is_that_of_its_bot(started):
    policies = {name: read_account_on_page(context_of(started), name).active for name in (*BOTS, "paper")}
    assert {name: active and active.policy for name, active in policies.items()} == {**BOTS, "paper": None}
    assert 'bots">stocks</a> (active)' in client_of(started).get("/accounts/stocks").text


def test_next_run_of_a_schedule_is_shown_once_it_is_known(started):
    shared = context_of(started)
    with recording() as sources:
        read_bot_table(shared)
    shared.next_runs["bot_coins"] = datetime(2026, 3, 3, 23, 30, tzinfo=UTC)
    assert not is_unchanged(sources)
    assert read_bot_table(shared).parts["bots"].count("next 2026-03-03 18:30") == 1


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_stop_on_the_page_halts_one_account_until_its_start(serve, look, home, scheme, width):
    _, url, _ = serve(home)
    page = look(url, width=width, scheme=scheme)
    coins, stocks = (page.locator(f"[data-key=bot-{name}]") for name in BOTS)
    coins.get_by_role("button", name="Stop").click()
    page.keyboard.type(MARKUP[0])
    page.keyboard.press("Enter")
    expect(coins).to_contain_text(MARKUP[0])
    expect(coins.locator(".chip")).to_have_text("halted")
    expect(stocks.locator(".chip")).to_have_text("active")
    assert [Store(home).switch_of(name).state().state for name in (*BOTS, "paper")] == ["halted", "active", "active"]
    assert axe_findings(page) == []
    assert page.evaluate("[window.hacked, document.documentElement.scrollWidth]") == [None, width]
    coins.get_by_role("button", name="Start").click()
    page.keyboard.type("prices are right")
    page.keyboard.press("Enter")
    expect(coins.locator(".chip")).to_have_text("active")
    assert Store(home).audit.events("coins")[-1].reason == "prices are right"
