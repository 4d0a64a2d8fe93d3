"""Pages of the RL Lab, over HTTP and in Chromium."""

import re

import pytest
from playwright.sync_api import expect

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.components.family import every_member
from nvtrader_pipelines.desk.halt import resume
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.runs.lifecycle import Launch, now
from nvtrader_pipelines.runs.run_deletion import delete_run, plan_deletion
from nvtrader_pipelines.runs.run_library import library_runs
from nvtrader_pipelines.runs.train_walk_judge import replay_run
from nvtrader_pipelines.runs.world_documents import world_document
from nvtrader_pipelines.service.documents.catalogue import FAMILIES
from nvtrader_pipelines.storage.store import Store
from tests.homes import copy_home, expose_run, run_of, small_home
from tests.research.sessions import a_journal, a_session, write_session
from tests.runs.small_worlds import CLOSED, run_steps, write_worlds
from tests.service.api.conftest import AUTHORIZED, TOKEN, client_of
from tests.service.api.page.test_browser import LOOKS, MARKUP, axe_findings
from tests.service.api.servers import served

pytestmark = pytest.mark.slow
PAGES = ("/lab", "/lab/components", "/lab/scoreboard")


@pytest.fixture(scope="module")
def changing(swept_home, fast_nvtrader, tmp_path_factory):
    """Copy of the swept home with two searches, of which each test changes a part of its own, and its service's URL."""
    home = copy_home(swept_home, tmp_path_factory.mktemp("lab") / "home")
    write_session(home, a_session(), a_journal().lines)
    write_session(home, a_session("20260301-090000-bbbb"), a_journal(4).lines)
    with served(home, command=fast_nvtrader) as (_, url, _):
        yield home, url


def test_pages_name_their_own_files_only(client, learned):
    for path in (*PAGES, f"/lab/runs/{learned.run_id}"):
        page = client.get(path)
        assert page.status_code == 200
        outside = {address for address in re.findall(r'(?:src|href)="([^"]+)"', page.text) if "//" in address}
        assert all(address.startswith("http://127.0.0.1:5000") for address in outside)  # MLflow's, a link
        assert not re.search(r"<script>|\son\w+=|style=", page.text)
        assert "default-src 'self'" in page.headers["content-security-policy"]


def test_page_of_a_run_has_its_verdict_folds_and_card(client, learned):
    page = client.get(f"/lab/runs/{learned.run_id[:8]}").text
    document = client.get(f"/rl/runs/{learned.run_id}").json()
    for section in ("verdict", "equity", "folds", "rewards", "replay", "training", "card"):
        assert f'id="{section}"' in page
    assert document["run"]["spec_hash"] in page
    assert page.count('<option value="') >= 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/lab/runs/none", 404),
        ("/api/runs/none/curves", 404),
        ("/lab/runs/..%2f..%2fetc", 404),
        ("/lab/runs/<script>alert(1)</script>", 404),
        ("/lab/compare", 422),
        ("/lab/compare?run=none&run=other", 422),
        ("/lab/tear-sheet/none", 404),
        ("/lab/runs/{run}/decisions/99", 404),
        ("/lab/runs/{run}/decisions/x", 422),
    ],
)
def test_unknown_runs_and_folds_are_problems(client, learned, path, status):
    answer = client.get(path.format(run=learned.run_id))
    assert answer.status_code == status
    assert "<script>alert" not in answer.text


def test_empty_home_says_what_to_do(tmp_path):
    client = client_of(small_home(tmp_path / "home"))
    assert "nvtrader materialize" in client.get("/lab").text
    assert client.get("/lab/scoreboard").status_code == 200


def test_every_member_of_every_family_is_shown(client):
    page = client.get("/lab/components").text
    for name, family in FAMILIES.items():
        assert f'id="{name}"' in page
        for member in every_member(family):
            assert f"<b>{kind_of(member)}</b>" in page


def test_tear_sheet_is_a_picture(client, learned):
    page = client.get(f"/lab/tear-sheet/{learned.run_id}").text
    picture = re.search(r"src=\"(/lab/pictures/[^\"]+)\"", page).group(1)
    assert client.get(picture).content.startswith(b"\x89PNG")


def test_run_deleted_while_looked_at_keeps_its_verdict(built_home, learned, tmp_path):
    home = copy_home(built_home, tmp_path / "home")
    client, store = client_of(home), Store(home)
    assert client.get(f"/lab/runs/{learned.run_id}").status_code == 200
    delete_run(store, plan_deletion(store, store.ledger.run(learned.run_id), ()), lambda _: None)
    page = client.get(f"/lab/runs/{learned.run_id}")
    assert page.status_code == 200
    assert "deleted" in page.text
    assert client.get(f"/api/runs/{learned.run_id}/curves").json()["weights"] == []
    assert client.get(f"/lab/runs/{learned.run_id}/decisions/0").status_code == 404
    assert learned.run_id not in client.get("/lab").text


def test_levered_run_has_its_gross_and_financing(client, learned, built_home, tmp_path):
    assert 'id="gross"' not in client.get(f"/lab/runs/{learned.run_id}").text
    store = expose_run(copy_home(built_home, tmp_path / "home"))
    page = client_of(store.home).get(f"/lab/runs/{run_of(store).run_id}").text
    assert 'id="gross"' in page
    assert "<dt>Financing a year</dt><dd>2.52\u00a0%" in page


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_page_of_a_run_is_accessible_and_never_scrolls_sideways(look, shared_url, learned, scheme, width):
    page = look(shared_url, f"/lab/runs/{learned.run_id}", width=width, scheme=scheme)
    for plot in ("equity", "rewards", "weights", "training"):
        page.locator(f"#plot-{plot}").scroll_into_view_if_needed()
        expect(page.locator(f"#plot-{plot} .main-svg").first).to_be_attached()
    assert axe_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("path", [*PAGES, "/report", pytest.param("/numbers?of=/api/env", marks=pytest.mark.nightly)])
def test_pages_are_accessible(look, shared_url, path):
    page = look(shared_url, path)
    assert axe_findings(page) == []
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_run_lists_its_episodes_and_replays_them_by_slider_and_keys(look, shared_url, client, learned):
    page = look(shared_url, f"/lab/runs/{learned.run_id}")
    rows = client.get(f"/rl/runs/{learned.run_id}/episodes?phase=test&limit=500").json()["rows"]
    expect(page.locator("#episodes-rows tr")).to_have_count(len(rows))
    expect(page.locator("#episodes-head")).to_contain_text("Reward")
    place = page.locator("#place")
    expect(place).to_contain_text("decision 1 of")
    names = page.locator("#now-weights tr").count()
    assert names >= 2
    page.keyboard.press(".")
    expect(place).to_contain_text("decision 2 of")
    expect(page.locator("#now-rewards tr").first).not_to_contain_text("first decision")
    page.keyboard.press(",")
    expect(place).to_contain_text("decision 1 of")
    cursor = page.locator("#cursor")
    last = int(cursor.get_attribute("max"))
    cursor.focus()
    page.keyboard.press("End")
    expect(place).to_contain_text(f"decision {last + 1} of {last + 1}")
    page.locator("#plot-replay").scroll_into_view_if_needed()
    expect(page.locator("#plot-replay .main-svg").first).to_be_attached()
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Pause").click()


def test_replay_of_a_run_names_its_parent_and_can_be_replayed(built_home, learned, tmp_path):
    home = copy_home(built_home, tmp_path / "home")
    store = Store(home)
    drain(replay_run(store, learned.run_id, Launch("task")))
    (run,) = [run for run in library_runs(store) if run.kind == "replay"]
    client = client_of(home)
    page = client.get(f"/lab/runs/{run.run_id}").text
    assert f'href="/lab/runs/{learned.run_id}"' in page
    assert 'id="folds"' not in page
    fold = re.search(r'<option value="(\d+)">', page).group(1)
    assert client.get(f"/lab/runs/{run.run_id}/decisions/{fold}").json()["decisions"]


def test_library_filters_and_compares(look, changing):
    page = look(changing[1], "/lab")
    rows = page.locator("#runs tbody tr:visible")
    n_all = rows.count()
    page.locator("#of-agent").select_option("ppo")
    assert 0 < rows.count() <= n_all
    page.locator("#wanted").fill("no such run")
    expect(rows).to_have_count(0)
    page.locator("#wanted").fill("")
    page.locator("#of-agent").select_option("")
    for i in range(2):
        page.locator("#runs input").nth(-1 - i).check()  # trainings; tests of other modules add walks
    page.get_by_role("button", name="Compare 2 runs").click()
    page.wait_for_url("**/lab/compare?*")
    expect(page.locator("#plot-compare .main-svg").first).to_be_attached()
    assert axe_findings(page) == []


def test_click_on_a_header_sorts_by_value_with_missing_ones_last(look, changing):
    page = look(changing[1], "/lab")
    table = page.locator("#runs")
    table.locator("tbody tr").first.evaluate("row => { row.querySelector('.ci b').textContent = ''; }")
    table.locator(".ci b").nth(1).evaluate("cell => { cell.textContent = '10.5'; }")
    table.locator(".ci b").nth(2).evaluate("cell => { cell.textContent = '\u22129.5'; }")
    button = table.get_by_role("button", name="Net Sharpe")
    for direction, numbers in (("descending", ["10.5", "\u22129.5"]), ("ascending", ["\u22129.5", "10.5"])):
        button.focus()
        page.keyboard.press("Enter")
        expect(table.locator("[aria-sort]")).to_have_attribute("aria-sort", direction)
        shown = table.locator(".ci b").all_inner_texts()
        assert [text for text in shown if text in numbers] == numbers
        assert set(shown[shown.index("") :]) <= {"", "\u2013"}
    table.locator("tbody .id").evaluate_all("ids => ids.forEach((id, i) => { id.textContent = 99 - i; })")  # digits
    table.get_by_role("button", name="Run").click()
    names = table.locator("tbody th a").all_inner_texts()
    assert names == sorted(names)
    assert axe_findings(page) == []


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_page_of_a_search_draws_its_finished_trials(look, changing, scheme, width):
    page = look(changing[1], "/lab/searches/20260302-090000-aaaa", width=width, scheme=scheme)
    expect(page.locator("h2.lead")).to_have_text("26 finished trials, 2 infeasible, 1 known, 1 pruned, 1 failed")
    for plot in ("parallel", "slices", "importances"):
        page.locator(f"#plot-{plot}").scroll_into_view_if_needed()
        expect(page.locator(f"#plot-{plot} .main-svg").first).to_be_attached()
    expect(page.locator("#plot-importances .ytick")).to_have_text(["gamma", "lookback", "learning rate"])
    assert axe_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_search_of_few_trials_has_a_sentence_in_place_of_pictures(look, changing, client):
    page = look(changing[1], "/lab/searches/20260301")
    expect(page.locator(".empty")).to_contain_text("10 different Sharpe ratios")
    assert page.locator(".plot").count() == 0
    assert client.get("/lab/searches/none").status_code == 404
    assert client.get("/lab/searches/none/charts").status_code == 404


def test_tags_and_note_are_saved_shown_as_text_and_filter_the_library(look, changing):
    page = look(changing[1], "/lab/runs/tiny")
    for tags, note in (("paper,  <b>, paper", f"line\n{MARKUP[0]}"), ("paper, <b>", "")):
        page.get_by_text("tags and a note").click()
        page.get_by_label("Tags").fill(tags)
        page.get_by_label("Note").fill(note)
        with page.expect_navigation():
            page.get_by_role("button", name="Save").click()
        expect(page.locator("#verdict .chip")).to_have_text(["paper", "<b>"])
        expect(page.locator("#verdict .text")).to_have_text([note] if note else [])
    page.goto(f"{changing[1]}/lab")
    page.locator("#of-tags").select_option("<b>")
    expect(page.locator("#runs tbody tr:visible th a")).to_have_text(["tiny"])
    assert page.evaluate("window.hacked") is None
    assert axe_findings(page) == []


@pytest.mark.parametrize("body", [{"note": "x" * 1001}, {"tags": "\x1b[2J"}, {"tags": ["a"]}])
def test_annotation_that_is_too_long_or_not_text_is_refused(client, body):
    answer = client.post("/api/runs/tiny/annotation", json=body, headers=AUTHORIZED)
    assert answer.status_code == 422
    assert next(iter(body)) in answer.json()["detail"]
    assert client.get("/api/runs/tiny").json()["annotation"]["note"] == ""


def test_experiment_is_archived_and_taken_back_in_the_library(look, changing):
    home, url = changing
    page = look(url, "/lab")
    assert page.get_by_role("button", name="Archive sweep-").count() == 0  # its variants go with it
    page.get_by_role("button", name="Archive sweep").click()
    expect(page.locator("#versions")).not_to_contain_text("sweep")
    assert len(Store(home).ledger.archived_names()) == 3
    page.get_by_role("link", name="Show archived").click()
    page.get_by_role("button", name="Unarchive sweep").click()
    expect(page.locator("#versions .chip")).to_have_count(0)
    assert Store(home).ledger.archived_names() == set()


def test_component_is_found_by_a_field(look, shared_url):
    page = look(shared_url, "/lab/components")
    page.locator("#wanted").fill("learning_rate")
    expect(page.locator("#agents")).to_be_visible()
    expect(page.locator("#sources")).to_be_hidden()


def test_trading_is_halted_from_the_lab(look, changing):
    home, url = changing
    page = look(url, "/lab")
    page.keyboard.press("h")
    page.get_by_label("Reason (may stay empty)").fill("prices look wrong")
    page.keyboard.press("Enter")
    expect(page.locator(".kill")).to_contain_text("Trading is halted")
    resume(Store(home), "ann", "they are right", now)
    assert TOKEN not in page.content()


@pytest.mark.nightly
def test_trading_is_halted_from_the_lab_without_a_reason(serve, look, built_home, tmp_path):
    home = copy_home(built_home, tmp_path / "home")
    _, url, _ = serve(home)
    page = look(url, "/lab")
    page.get_by_role("button", name="Halt trading").first.click()
    page.locator("#halt button[type=submit]").click()
    expect(page.locator(".kill")).to_contain_text("Trading is halted")


def test_page_of_a_run_in_a_world_shows_its_results(store):
    write_worlds(store.home, closed=CLOSED)
    run_steps(store, "closed")
    document = world_document(store, "closed")
    page = client_of(store.home).get(f"/lab/runs/{document.run.run_id}")
    assert (page.status_code, document.verdict in page.text) == (200, True)
    assert re.findall(r'<th scope="row">(\w+)</th>', page.text) == ["all", "0"]
    assert "nvtrader worlds run closed" in page.text
    (picture,) = re.findall(r"src=\"(/lab/pictures/[^\"]+)\"", page.text)
    assert client_of(store.home).get(picture).content.startswith(b"\x89PNG")
    assert client_of(store.home).get(picture.replace("rewards", "quotes")).status_code == 404
