"""Pages of the RL Lab, over HTTP and in Chromium."""

import json
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect
from pydantic import BaseModel

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.components.family import every_member
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.run_deletion import delete_run, plan_deletion
from nvtrader_pipelines.runs.run_library import library_runs
from nvtrader_pipelines.runs.train_walk_judge import replay_run
from nvtrader_pipelines.service.documents.catalogue import FAMILIES
from nvtrader_pipelines.storage.specs import read_experiment
from nvtrader_pipelines.storage.store import Store
from tests.homes import copy_home, expose_run, run_of, small_home
from tests.research.sessions import a_journal, a_session, write_session
from tests.runs.small_runs import market_home
from tests.service.api.conftest import AUTHORIZED, TOKEN, client_of
from tests.service.api.page.test_browser import LOOKS, MARKUP, axe_findings
from tests.service.api.servers import served

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[4]
PAGES = ("/lab", "/lab/components", "/lab/scoreboard")


@pytest.fixture(scope="module")
def learned(built_home):
    """Run of the shared home that learned."""
    return next(run for run in library_runs(Store(built_home)) if run.agent == "ppo")


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
    delete_run(store, plan_deletion(store, store.ledger.run(learned.run_id), None), lambda _: None)
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


@pytest.mark.parametrize("path", [*PAGES, "/report", "/numbers?of=/api/env"])
def test_pages_are_accessible(look, shared_url, path):
    page = look(shared_url, path)
    assert axe_findings(page) == []
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_builder_previews_what_an_agent_would_see(look, shared_url, learned):
    page = look(shared_url, f"/lab/build?like={learned.partition_key}")
    for kind in ("reward", "observation"):
        with page.expect_response(f"**/rl/lab/preview-{kind}"):
            page.get_by_role("button", name=f"Preview the {kind}").click()
        expect(page.locator("#previewed tbody tr").first).to_be_visible()
        assert axe_findings(page) == []


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


def test_trading_is_halted_from_the_lab(serve, look, built_home, tmp_path):
    home = copy_home(built_home, tmp_path / "home")
    _, url, _ = serve(home)
    page = look(url, "/lab")
    page.keyboard.press("h")
    page.get_by_label("Reason (may stay empty)").fill("prices look wrong")
    page.keyboard.press("Enter")
    expect(page.locator(".kill")).to_contain_text("Trading is halted")
    shutil.rmtree(home.root)
    assert TOKEN not in page.content()


@pytest.mark.nightly
def test_trading_is_halted_from_the_lab_without_a_reason(serve, look, built_home, tmp_path):
    home = copy_home(built_home, tmp_path / "home")
    _, url, _ = serve(home)
    page = look(url, "/lab")
    page.get_by_role("button", name="Halt trading").first.click()
    page.locator("#halt button[type=submit]").click()
    expect(page.locator(".kill")).to_contain_text("Trading is halted")


def test_builder_begins_like_a_version_and_shows_problems_beside_fields(look, shared_url, learned):
    page = look(shared_url, f"/lab/build?like={learned.partition_key}")
    expect(page.locator("#state")).to_contain_text(f"valid: {learned.experiment}-2@")
    assert axe_findings(page) == []
    page.get_by_text("All settings", exact=True).last.click()
    assert axe_findings(page) == []
    lookback = page.locator("#field-environment-lookback")
    lookback.fill("999")
    lookback.press("Tab")
    error = page.locator("#field-environment .error[data-path='environment.lookback']")
    expect(error).to_contain_text("999")
    expect(lookback).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#run")).to_have_attribute("aria-disabled", "true")
    lookback.fill("7")
    lookback.press("Tab")
    expect(page.locator("#state")).to_contain_text("valid:")
    expect(page.locator("#yaml")).to_have_value(re.compile(r"lookback: 7\n"))
    page.reload()
    expect(lookback).to_have_value("7")
    expect(lookback).to_be_hidden()
    expect(page.locator("#yaml")).to_have_value(re.compile(r"lookback: 7\n"))


def test_yaml_and_form_of_the_builder_are_one_experiment(look, shared_url, learned):
    page = look(shared_url, f"/lab/build?like={learned.partition_key}")
    yaml = page.locator("#yaml")
    yaml.fill(re.sub(r"rebal_freq: \d+", "rebal_freq: 3", yaml.input_value()))
    yaml.press("Tab")
    expect(page.locator("#field-environment-rebal_freq")).to_have_value("3")
    page.get_by_label("Agent").select_option("equal_weight")
    expect(page.locator(".error[data-path='seeds']")).to_contain_text("one seed")  # All settings open by it
    page.locator("#field-seeds").fill("0")
    page.locator("#field-seeds").press("Tab")
    expect(page.locator("#state")).to_contain_text("valid:")
    n_rewards = page.locator("#field-environment-rewards > fieldset").count()
    page.get_by_role("button", name="Add to rewards").click()
    expect(page.locator("#field-environment-rewards > fieldset")).to_have_count(n_rewards + 1)
    with page.tolerant():
        yaml.fill("<script>window.hacked=1</script>: [")
        yaml.press("Tab")
        expect(page.locator("#problems")).to_contain_text("not valid YAML")
    assert page.evaluate("window.hacked") is None


def leaves(part, path=()):
    """Settings of a resolved spec as the form shows them: identifier of the field to text."""
    if isinstance(part, BaseModel):
        names = [name for name in type(part).model_fields if name != "kind"]
        kind = {f"kind-{'-'.join(path)}": part.kind} if hasattr(part, "kind") and path else {}
        return kind | {k: v for name in names for k, v in leaves(getattr(part, name), (*path, name)).items()}
    if isinstance(part, tuple) and part and isinstance(part[0], BaseModel):
        return {k: v for i, each in enumerate(part) for k, v in leaves(each, (*path, str(i))).items()}
    return {
        f"field-{'-'.join(path)}": ", ".join(map(shown_text, part)) if isinstance(part, tuple) else shown_text(part)
    }


def shown_text(value):
    """Value as JavaScript writes it: 1, not 1.0; true, not True; nothing for None."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: ""}[value]
    return f"{value:.17g}" if isinstance(value, float) and value == int(value) else str(value).replace("e-0", "e-")


def test_form_of_the_builder_shows_the_resolved_spec(serve, look, home):
    """Of every shipped experiment and example, also the fields that the canonical form leaves out."""
    _, url, _ = serve(home)
    page = look(url, "/lab/build")
    files = [path for folder in ("data/experiments", "docs/examples") for path in (ROOT / folder).rglob("*.yaml")]
    assert len(files) >= 13
    for spec in (read_experiment(path) for path in sorted(files) if path.name != "base.yaml"):
        posted = json.dumps(spec.model_dump(mode="json"))
        page.evaluate("async (yaml) => { await check({ yaml }); }", posted)
        shown = page.evaluate(
            "() => Object.fromEntries([...document.querySelectorAll('#draft :is(input, select, textarea)')]"
            ".map(({ id, value }) => [id, value]))"
        )
        fields = {name: text for name, text in leaves(spec).items() if name in shown or name.startswith("field-")}
        assert {name: shown.get(name, "") for name in fields} == fields


def test_field_that_is_left_out_by_default_is_changed_and_changed_back(serve, look, home):
    _, url, _ = serve(home)
    page = look(url, "/lab/build")
    page.get_by_text("All settings", exact=True).last.click()
    select, yaml = page.locator("#field-environment-pipeline"), page.locator("#yaml")
    expect(select).to_have_value("false")
    select.select_option("true")
    expect(yaml).to_have_value(re.compile(r"pipeline: true\n"))
    select.select_option("false")
    expect(yaml).not_to_have_value(re.compile(r"pipeline: true\n"))
    financing = page.locator("#kind-environment-financing")
    expect(financing).to_have_value("margin_loan")
    financing.select_option("gross_above_one")
    expect(yaml).to_have_value(re.compile(r"kind: gross_above_one\n"))


def test_builder_begins_with_few_fields_and_says_bounds_in_words(look, shared_url, learned):
    page = look(shared_url, f"/lab/build?like={learned.partition_key}")
    labels = page.locator("#draft > .fields label").all_inner_texts()
    assert labels[:5] == ["Name", "Source", "Symbols", "Agent", "Total timesteps total_timesteps"]
    expect(page.locator("#field-environment-rewards")).to_be_visible()
    page.get_by_text("All settings", exact=True).last.click()
    field = page.locator(".field", has=page.locator("#field-agent-gae_lambda"))
    expect(field.locator("label")).to_have_text("GAE lambda gae_lambda")
    expect(field.locator("small")).to_contain_text("between 0 and 1")
    hints = " ".join(page.locator("#draft small").all_inner_texts())
    assert "a whole number between 5 and 60" in hints  # of lookback
    assert "undefined" not in hints


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"content": []}, 422),
        ({"yaml": "!!python/object:os.system x"}, 422),
        ({"else": 1}, 422),
        ({"content": {}}, 200),
    ],
)
def test_check_of_a_draft_refuses_what_is_no_draft(client, body, status):
    answer = client.post("/lab/build/check", json=body, headers=AUTHORIZED)
    assert answer.status_code == status
    assert client.post("/lab/build/check", json=body).status_code == 401


def test_builder_begins_with_a_fit_to_the_only_market(tmp_path):
    page = client_of(market_home(tmp_path / "market").home).get("/lab/build").text
    draft = json.loads(page.partition('id="data">')[2].partition("</script>")[0])["draft"]
    assert (draft["content"]["market"]["source"], draft["market_problem"]) == ("landing", "")
    assert draft["content"]["agent"]["backbone"]["kind"] == "shared_asset"


def test_builder_of_an_unknown_version_is_not_found(client):
    assert client.get("/lab/build?like=none@00000000").status_code == 404
