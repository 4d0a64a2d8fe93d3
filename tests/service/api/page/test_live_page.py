import asyncio
import time

import pytest

from nvtrader_pipelines.desk.account_facts import AccountFacts
from nvtrader_pipelines.desk.halt import stop_trading
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page import live_page
from nvtrader_pipelines.service.api.page.content import Content, Series, render
from nvtrader_pipelines.service.api.page.live_page import POLL_SECONDS, LivePage, PageStream, Section
from nvtrader_pipelines.service.api.page.sections.desk import PageAccount
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.training_curve_file import CurvePoint, curve_path
from tests.homes import copy_home
from tests.service.cli.sample_plans import write_book

DESK = {"switch", "band", "trades"}


@pytest.fixture
def home(built_home, tmp_path):
    return copy_home(built_home, tmp_path / "home")


@pytest.fixture
def live(home):
    page = LivePage(Context(Store(home), "ann"))
    page.refresh()
    return page


def test_refresh_without_changes_changes_nothing(live):
    version = live.changes().version
    live.refresh()
    changes = live.changes(version)
    assert (changes.after, changes.version) == (version, version)
    assert (changes.parts, changes.values, changes.series) == ({}, {}, {})


def test_halt_changes_the_parts_that_show_it(home, live):
    version = live.changes().version
    stop_trading(Store(home), "ann", "prices look wrong", now)
    live.refresh()
    changes = live.changes(version)
    assert set(changes.parts) == DESK | {"next"}
    assert not changes.series


@pytest.mark.parametrize("after", ["", "0.0", "other.3", "x", "\N{SUPERSCRIPT TWO}.\N{SUPERSCRIPT TWO}", "." * 40])
def test_unknown_version_gets_everything(live, after):
    assert live.changes(after).after == ""
    assert live.changes(after).parts == live.changes().parts
    assert live.changes(after).series == live.changes().series


def test_points_of_a_curve_come_once(home, live):
    (file,) = home.training_curves.glob("*.jsonl") if home.training_curves.exists() else (curve_path(home, "0" * 16),)
    file.parent.mkdir(exist_ok=True)
    version = live.changes().version
    for timesteps in (100, 200):
        point = CurvePoint(fold=9, seed=0, timesteps=timesteps, total_timesteps=300, mean_reward=0.5)
        with file.open("a") as lines:
            lines.write(f"{point.model_dump_json()}\n")
        live.refresh()
    changes = live.changes(version).series["curve"]
    assert (changes.reset, [row["timesteps"] for row in changes.rows]) == (True, [100, 200])
    later = live.changes(live.changes().version)
    assert "curve" not in later.series


@pytest.mark.parametrize(
    ("file", "part"),
    [
        (lambda home: home.catalog, "ranked"),
        (lambda home: home.ledger, "training"),
        (lambda home: home.market_file, "setup"),
        (lambda home: home.audit / "events.jsonl", "trades"),
    ],
    ids=["catalog", "ledger", "market", "audit"],
)
def test_damaged_file_is_said_in_its_panel_and_the_others_go_on(home, file, part):
    damaged = file(home)
    damaged.parent.mkdir(exist_ok=True)
    damaged.write_bytes(b"\x00damaged: [\n")
    live = LivePage(Context(Store(home), "ann"))
    live.refresh()
    parts = live.changes().parts
    assert 'class="say problem' in parts[part] or "cannot be read" in parts[part]
    assert "Halt trading" in parts["switch"]
    assert not [name for name in ("switch", "band", "search") if "say problem" in parts[name]]


def rows(*numbers):
    return tuple({"id": number, "value": 10 * number} for number in numbers)


def test_only_new_and_changed_rows_are_sent(live):
    live.take(Content({}, {"chart": Series("a", rows(1, 2))}))
    version = live.changes().version
    live.take(Content({}, {"chart": Series("a", (*rows(1), {"id": 2, "value": 0}, *rows(3)))}))
    changes = live.changes(version).series["chart"]
    assert not changes.reset
    assert [row["id"] for row in changes.rows] == [2, 3]


def test_another_key_begins_the_rows_anew(live):
    live.take(Content({}, {"chart": Series("a", rows(1, 2))}))
    version = live.changes().version
    live.take(Content({}, {"chart": Series("b", rows(3))}))
    changes = live.changes(version).series["chart"]
    assert (changes.reset, [row["id"] for row in changes.rows]) == (True, [3])


def test_stream_that_is_followed_again_has_a_reader(home, live):
    async def follow():
        stream = PageStream(live)
        first = stream.follow("")
        version = (await anext(first)).version
        await asyncio.sleep(POLL_SECONDS)
        await first.aclose()
        await asyncio.sleep(5 * POLL_SECONDS)
        again = stream.follow(version)
        version = (await anext(again)).version
        stop_trading(Store(home), "ann", "prices look wrong", now)
        parts = set()
        async for changes in again:  # a halt may come in two messages
            parts |= changes.parts.keys()
            if parts >= DESK:
                return

    asyncio.run(asyncio.wait_for(follow(), 3.0))


def test_stream_whose_reader_fails_ends(live, monkeypatch):
    def fail(**_):
        raise OSError

    async def follow():
        async for _ in PageStream(live).follow(""):
            pass

    monkeypatch.setattr(live_page, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(live, "refresh", fail)
    with pytest.raises(ExceptionGroup) as failure:
        asyncio.run(asyncio.wait_for(follow(), 3.0))
    assert isinstance(failure.value.exceptions[0], OSError)


def test_slow_read_of_the_home_does_not_hold_up_other_requests(live, monkeypatch):
    slow = Section("slow", lambda _: time.sleep(0.5) or Content({}))
    monkeypatch.setattr(live_page, "SECTIONS", {"slow": slow})

    async def follow():
        stream = PageStream(live)
        first, second = stream.follow(""), stream.follow("")
        await anext(first)
        await asyncio.sleep(0.1)
        task = asyncio.create_task(anext(second))
        began = time.monotonic()
        await asyncio.sleep(0.01)
        seconds = time.monotonic() - began
        await task
        for changes in (first, second):
            await changes.aclose()
        return seconds

    assert asyncio.run(follow()) < 0.2


@pytest.mark.parametrize(("gross_before_cap", "n_shown"), [(None, 0), (1.6, 1)])
def test_ticker_shows_the_gross_of_a_levered_account(home, gross_before_cap, n_shown):
    *_, last = write_book(home, 1.0)
    state = last.model_copy(update={"gross_before_cap": gross_before_cap})
    part = render("ticker", accounts=[PageAccount("paper", AccountFacts("paper", [state], [], {}, None))])
    assert part.count("<dt>Gross</dt>") == n_shown
