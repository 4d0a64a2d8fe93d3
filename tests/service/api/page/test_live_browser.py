"""The page in Chromium while its home changes: it stays current, and keeps what a person holds on it."""

import os
import signal
import time
from datetime import date

import polars as pl
import psutil
import pytest
from playwright.sync_api import expect

from nvtrader_pipelines.desk.halt import resume, stop_trading
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.promotion.promote import activate_manually
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.training_curve_file import append_point
from tests.homes import copy_home, small_home
from tests.markets import synthetic_bars, synthetic_sessions
from tests.research.search_homes import land
from tests.research.sessions import a_journal, a_session, write_session
from tests.service.api.servers import free_port, served

pytestmark = pytest.mark.slow
LOST = 12_000  # milliseconds of silence after which a connection is lost
STREAM = "/api/continuous-rl/stream"
CURVE = "[...series.curve.rows.values()].map((row) => row.timesteps)"


@pytest.fixture
def home(built_home, tmp_path):
    return copy_home(built_home, tmp_path / "home")


@pytest.fixture(scope="module")
def halting(built_home, fast_nvtrader, tmp_path_factory):
    """Copy of the shared home in which tests halt and resume trading, and the URL of its service."""
    home = copy_home(built_home, tmp_path_factory.mktemp("halting") / "home")
    with served(home, command=fast_nvtrader) as (_, url, _):
        yield home, url


def long_home(root):
    """Home with a market of one name that is long enough for the folds of a manual run."""
    home = Home(root)
    home.landing.mkdir(parents=True)
    home.experiments.mkdir(parents=True)
    days = pl.Series("date", synthetic_sessions(3100, date(2010, 1, 4)))
    bars = synthetic_bars(n_sessions=len(days), n_symbols=1).with_columns(days.cast(pl.String))
    land(Store(home), bars)
    return home


def add_points(home, *timesteps):
    """Append points to the learning curve of a run."""
    run_id = Store(home).ledger.runs()["run_id"][0]
    for count in timesteps:
        metrics = {"mean_reward": 1e-6 * count}
        spent = {"fold": 9, "seed": 0, "timesteps": count, "total_timesteps": 2000}
        step = Progress(
            task_id="", run_id=run_id, stage="train.step", message="", timestamp=now(), metrics=metrics, **spent
        )
        append_point(home, step)


def wait_until(page, condition, seconds=10.0):
    """Wait until a script is true on the page, which allows no script to be made of text by itself."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(50)


def streams_of(context):
    """Requests of streams of the pages of a context, in the order in which they began."""
    requests = []
    context.on("request", lambda request: STREAM in request.url and requests.append(request))
    return requests


@pytest.mark.nightly
def test_training_moves_its_curve_to_its_end_without_a_reload(serve, look, tmp_path):
    _, url, _ = serve(long_home(tmp_path / "home"))
    page = look(url)
    page.evaluate("window.isKept = true")
    form = page.locator("#training form")
    form.get_by_label("Symbols").fill("AAA")
    form.get_by_label("Timesteps").fill("8,192")
    form.get_by_label("Market").select_option("landing")
    form.get_by_role("button", name="Train").click()
    expect(form.locator(".done, .error").locator("visible=true")).to_contain_text("Launched", timeout=60_000)
    wait_until(page, "series.curve?.rows.size", seconds=60.0)
    n_first = page.evaluate("series.curve.rows.size")
    expect(page.locator("#training .chip.done")).to_be_visible(timeout=60_000)
    assert page.evaluate("series.curve.rows.size") > n_first
    assert page.evaluate("window.isKept")


def test_killed_service_leaves_no_gap_in_the_curve(serve, look, home):
    port = free_port()
    process, url, _ = serve(home, port=port)
    add_points(home, 100, 200)
    page = look(url)
    add_points(home, 300)
    wait_until(page, f"{CURVE}.includes(300)")
    with page.tolerant():
        process.kill()
        process.communicate()
        expect(page.locator("#conn")).to_contain_text("Reconnecting")
        expect(page.locator("#lost")).to_be_visible()
        add_points(home, 400, 500)
        serve(home, port=port)
        expect(page.locator("#conn")).to_contain_text("Live")
    expect(page.locator("#lost")).to_be_hidden()
    add_points(home, 600)
    wait_until(page, f"{CURVE}.includes(600)")
    assert page.evaluate(CURVE) == [100, 200, 300, 400, 500, 600]


@pytest.mark.parametrize("n_tabs", [3, pytest.param(8, marks=pytest.mark.nightly)])
def test_tabs_share_one_stream_and_another_takes_it_over(look, halting, n_tabs):
    home, url = halting
    first = look(url)
    streams = streams_of(first.context)
    first.reload()
    pages = [first, *(first.context.new_page() for _ in range(n_tabs - 1))]
    for page in pages[1:]:
        page.goto(f"{url}/continuous-rl.html", wait_until="domcontentloaded")
    stop_trading(Store(home), "ann", "a drill", now)
    for page in pages:
        expect(page.locator(".band.halted")).to_contain_text("a drill")
    assert [request.frame.page for request in streams if not request.failure] == [first]  # a reload fails its stream
    first.close()
    resume(Store(home), "ann", "the drill is over", now)
    for page in pages[1:]:
        expect(page.locator(".band.halted")).to_have_count(0)
    before, after = (request.frame.page for request in streams if not request.failure)
    assert before is first
    assert after in pages[1:]


def test_change_keeps_reason_focus_and_scroll(serve, look, waiting, tmp_path):
    home = copy_home(waiting, tmp_path / "home")
    _, url, _ = serve(home)
    page = look(url)
    reason = page.get_by_label("Reason (needed to override or reject)")
    reason.fill("earnings tom")
    page.evaluate("scrollTo(0, 0)")
    name = read_active(Store(home)).policy
    for policy, n_warnings in ((f"{name}/seed-0", 1), (name, 0)):
        activate_manually(Store(home), policy, "bob", "a change", now)
        expect(page.locator(".hint.warn")).to_have_count(n_warnings)
    stop_trading(Store(home), "ann", "a drill", now)
    expect(page.locator(".decide .error").filter(has_text="halted")).to_be_visible()
    expect(reason).to_be_focused()
    page.keyboard.type("orrow")
    expect(reason).to_have_value("earnings tomorrow")


@pytest.mark.nightly
def test_change_of_a_plan_does_not_scroll_the_page(serve, look, waiting, tmp_path):
    home = copy_home(waiting, tmp_path / "home")
    _, url, _ = serve(home)
    page = look(url)
    stop_trading(Store(home), "ann", "a drill", now)
    expect(page.locator(".decide .error").filter(has_text="halted")).to_be_attached()
    assert page.evaluate("scrollY") == 0


def test_new_trial_keeps_the_opened_row_the_focus_and_the_scroll(serve, look, tmp_path):
    home = small_home(tmp_path / "home")
    folder = write_session(home, a_session(), a_journal(12).lines)
    lines = folder.read_lines()
    last = max(i for i, line in enumerate(lines) if b'"event":"trial"' in line)
    folder.journal.write_bytes(b"".join(line + b"\n" for line in lines[:last]))
    _, url, _ = serve(home)
    page = look(url)
    page.add_style_tag(content="#autoresearch .scroll.tall { max-height: 5rem }")
    rows = page.locator("#autoresearch tbody tr[data-key]")
    n_rows = rows.count()
    row = rows.filter(has=page.locator("summary")).last
    key = row.get_attribute("data-key")
    row.locator("summary").click()
    table = page.locator("#autoresearch .scroll.tall")
    top = table.evaluate("element => element.scrollTop")
    assert top > 0
    with folder.journal.open("ab") as journal:
        journal.write(b"".join(line + b"\n" for line in lines[last:]))
    expect(rows).not_to_have_count(n_rows)
    opened = page.locator(f"#autoresearch tr[data-key='{key}'] details")
    expect(opened).to_have_attribute("open", "")
    expect(opened.locator("summary")).to_be_focused()
    assert table.evaluate("element => element.scrollTop") >= top


def test_page_polls_where_the_stream_cannot_be_opened(look, halting):
    home, url = halting
    page = look(url)
    page.context.route(f"**{STREAM}*", lambda route: route.abort())
    with page.tolerant():
        page.reload()
        expect(page.locator("#conn")).to_contain_text("Polling")
        stop_trading(Store(home), "ann", "a drill", now)
        expect(page.locator(".band.halted")).to_contain_text("a drill")
        expect(page.locator("#conn")).to_contain_text("Polling")
    resume(Store(home), "ann", "the drill is over", now)


def test_row_that_moves_up_keeps_the_focus(look, shared_url):
    page = look(shared_url)
    links = page.locator("#ratio tbody:visible th a")
    text = links.last.inner_text()
    links.last.focus()
    page.evaluate("""() => {
        const part = $("[data-part=ranked]").cloneNode(true), rows = $("tbody", part);
        rows.prepend(rows.lastElementChild);
        takePart("ranked", part.innerHTML);
    }""")
    expect(links.first).to_have_text(text)
    expect(links.first).to_be_focused()


@pytest.mark.nightly
def test_every_tab_says_that_a_service_hangs(serve, look, home):
    _, url, _ = serve(home)
    port = int(url.rpartition(":")[2])
    (service,) = {each.pid for each in psutil.net_connections() if each.laddr.port == port and each.status == "LISTEN"}
    first = look(url)
    second = first.context.new_page()
    second.goto(f"{url}/continuous-rl.html", wait_until="domcontentloaded")
    second.evaluate("poll()")  # a loss before this one
    expect(second.locator("#conn")).to_contain_text("Live")
    os.kill(service, signal.SIGSTOP)
    for page in (first, second):
        page.clock.fast_forward(LOST)
        expect(page.locator("#conn")).to_contain_text("Reconnecting", timeout=30_000)
    os.kill(service, signal.SIGCONT)
    for page in (first, second):
        expect(page.locator("#conn")).to_contain_text("Live")


@pytest.mark.nightly
def test_new_point_keeps_the_zoom_of_a_chart(serve, look, home):
    _, url, _ = serve(home)
    add_points(home, *range(100, 1100, 100))
    page = look(url)
    page.locator("#plot-curve").scroll_into_view_if_needed()
    expect(page.locator("#plot-curve .main-svg").first).to_be_attached()
    box = page.locator("#plot-curve .nsewdrag").bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"], steps=5)
    page.mouse.up()
    wait_until(page, "document.querySelector('#plot-curve').layout.xaxis.range[0] > 100")
    zoomed = page.evaluate("document.querySelector('#plot-curve').layout.xaxis.range")
    add_points(home, 1100)
    wait_until(page, "document.querySelector('#plot-curve').data[0].x.at(-1) === 1100")
    assert page.evaluate("document.querySelector('#plot-curve').layout.xaxis.range") == zoomed
