"""The page in Chromium: what a person sees and does."""

from datetime import date

import polars as pl
import pytest
from playwright.sync_api import expect

from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.desk.halt import stop_trading
from nvtrader_pipelines.execution.edited_plans import edited_plan_id
from nvtrader_pipelines.execution.plan_decision import Reject
from nvtrader_pipelines.execution.plan_records import plan_records
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.promotion.promote import activate_manually
from nvtrader_pipelines.research.journal import ModelAsked, TrialJudged
from nvtrader_pipelines.research.recorded_session import read_session
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import OUTCOMES
from tests import llm_server
from tests.homes import copy_home
from tests.research.search_homes import market, search_home
from tests.research.sessions import a_journal, a_session, write_session
from tests.service.api.conftest import TOKEN
from tests.service.api.servers import served

pytestmark = pytest.mark.slow
MARKUP = (
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=1</script>",
    '"><svg onload=window.hacked=1>',
    "</textarea></template><iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
    "{{7*7}}{% include 'page.html.j2' %}&lt;b&gt;<!--",
)
UNDO = 5000  # milliseconds for which a decision can be undone
AXE_RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]


def axe_findings(page):
    """Findings of axe-core, as rule and first place."""
    from axe_playwright_python.sync_playwright import Axe

    findings = Axe().run(page, options={"runOnly": AXE_RULES}).response["violations"]
    return [(finding["id"], finding["nodes"][0]["html"][:200], len(finding["nodes"])) for finding in findings]


AT_NIGHT = [("light", 1280), ("dark", 1280), ("light", 390)]
LOOKS = [("dark", 390), *(pytest.param(*look, marks=pytest.mark.nightly) for look in AT_NIGHT)]  # scheme and width


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_page_is_accessible_and_never_scrolls_sideways(look, shared_url, scheme, width):
    page = look(shared_url, width=width, scheme=scheme)
    page.locator("#ratio").scroll_into_view_if_needed()
    expect(page.locator("#plot-ratio .main-svg").first).to_be_attached()
    assert axe_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.fixture(scope="module")
def changing(built_home, fast_nvtrader, tmp_path_factory):
    """Copy of the shared home, of which each test changes a part of its own, and the URL of its service."""
    home = copy_home(built_home, tmp_path_factory.mktemp("changing") / "home")
    with served(home, command=fast_nvtrader) as (_, url, _):
        yield home, url


def test_halt_and_resume_are_shown_at_once(look, changing):
    home, url = changing
    page = look(url)
    page.keyboard.press("h")
    page.locator("#halt").get_by_label("Reason (may stay empty)").fill("prices look wrong")
    page.keyboard.press("Enter")
    expect(page.locator(".band.halted")).to_contain_text("prices look wrong")
    assert "prices look wrong" in FileKillSwitch(home).halt_reason()
    page.get_by_role("button", name="Resume trading").click()
    page.locator("#resume").get_by_label("Reason").fill("they are right")
    page.locator("#resume").get_by_role("button", name="Resume trading").click()
    expect(page.locator(".band.halted")).to_have_count(0)
    expect(page.get_by_role("button", name="Halt trading").first).to_be_visible()
    assert FileKillSwitch(home).halt_reason() is None


def write_outcomes(home, excess, reason="too much", *, practice=()):
    """Write the outcomes of edited plans, five sessions apart, those of practice last."""
    days = NEW_YORK.sessions(date(2024, 1, 2), date(2024, 12, 31))[::5]
    rows = [
        {
            "session": day.item(),
            "session_number": 5 * n,
            "decision": "edited",
            "reason": reason,
            "excess_pct": pct,
            "weight": float(n < len(excess)),
            "practice": n >= len(excess),
        }
        for n, (day, pct) in enumerate(zip(days, [*excess, *practice], strict=False))
    ]
    Store(home).tables.replace(OUTCOMES, pl.DataFrame(rows, schema=OUTCOMES.schema), {})


def decisions(home):
    """Status and reason of every plan, by account."""
    records = plan_records(Store(home).audit.events()).values()
    return {record.plan.account: (record.status, record.reason) for record in records}


@pytest.fixture(scope="module", params=[3, pytest.param(20, marks=pytest.mark.nightly)])
def many(request, waiting, tmp_path_factory):
    """Home with a number of accounts more, each with a plan that waits."""
    home = copy_home(waiting, tmp_path_factory.mktemp("many") / "home")
    home.accounts.mkdir(exist_ok=True)
    for number in range(request.param):
        (home.accounts / f"book-{number:02}.yaml").write_text("kind: simulated\n")
        for _ in Desk(Store(home), f"book-{number:02}", by="ann").trade(until_waiting=True):
            pass
    return home, request.param


def test_many_plans_are_decided_elsewhere_and_by_keyboard(serve, look, many):
    home, n_more = many
    _, url, _ = serve(home)
    page = look(url)
    expect(page.locator("[role=tab]")).to_have_count(n_more + 1)
    page.keyboard.press("a")  # the plans are not in view yet
    expect(page.locator("#toast")).to_be_hidden()
    plan, following, *_ = [tab.get_attribute("data-tab") for tab in page.locator("[role=tab]").all()]
    account = page.locator("[role=tab]").first.get_attribute("data-of")
    page.locator("#decisions").scroll_into_view_if_needed()
    page.keyboard.press("e")
    page.keyboard.type("9")
    Desk(Store(home), account, by="bob").decide(plan, Reject(reason="too risky"), "bob")
    expect(page.locator("#notice")).to_contain_text(account)
    expect(page.locator(f"[data-tab='{following}']")).to_have_attribute("aria-selected", "true")
    panel = page.locator("[role=tabpanel]:visible")
    expect(panel).to_have_id(f"plan-{following}")
    page.keyboard.press("x")  # a rejection needs a reason
    expect(panel.locator(".error")).to_be_visible()
    page.keyboard.type("concentrated")
    page.keyboard.press("Escape")
    page.keyboard.press("x")
    expect(panel).not_to_have_id(f"plan-{following}")
    panel.get_by_label("Reason (needed to override or reject)").fill("earnings tomorrow")
    panel.get_by_role("button", name="Keep holdings").click()
    for _ in range(n_more - 2):
        page.keyboard.press("a")
    page.clock.fast_forward(UNDO)
    expect(page.locator("[role=tab]")).to_have_count(0, timeout=60_000)
    reasons = {("rejected", "too risky"), ("rejected", "concentrated"), ("overridden", "earnings tomorrow")}
    decided = [*decisions(home).values()]
    assert {each for each in decided if each[0] != "approved"} == reasons
    assert len(decided) == n_more + 1


def test_edited_weights_replace_the_plan_and_wait_again_where_findings_ask(serve, look, waiting, tmp_path):
    home = copy_home(waiting, tmp_path / "home")
    (parent,) = plan_records(Store(home).audit.events()).values()
    _, url, _ = serve(home)
    page = look(url)
    page.locator("#decisions").scroll_into_view_if_needed()
    page.keyboard.press("e")
    weights, override = page.locator("input.weight:visible"), page.locator("[data-weights]:visible")
    expect(weights).to_have_count(len(parent.plan.symbols) - 1)
    name, *_ = [row.get_attribute("data-symbol") for row in page.locator("tr[data-symbol]").all()]
    sides = page.locator(".sides:visible").inner_text()
    weights.first.fill("-1")
    expect(override).to_have_attribute("aria-disabled", "true")
    expect(page.locator(".sides:visible")).to_have_text(sides)
    page.get_by_role("button", name="Half of the change").click()
    before = 100.0 * parent.plan.held[parent.plan.symbols.index(name)]
    after = 100.0 * parent.plan.target[parent.plan.symbols.index(name)]
    assert float(weights.first.input_value()) == pytest.approx((before + after) / 2.0, abs=0.06)
    page.get_by_role("button", name="As proposed").click()
    weights.first.fill("12.5")
    expect(page.locator("tr[data-symbol] .change:visible").first).to_have_text(f"{12.5 - before:+.1f}")
    stop_trading(Store(home), "bob", "prices look wrong", now)  # renders the plans anew
    expect(page.locator("[role=tabpanel]:visible")).to_contain_text("Trading is halted")
    assert weights.first.input_value() == "12.5"
    expect(page.locator("tr[data-symbol] .change:visible").first).to_have_text(f"{12.5 - before:+.1f}")
    page.get_by_label("Reason (needed to override or reject)").fill("too much of it")
    override.click()
    page.clock.fast_forward(UNDO)
    tab = page.locator(f"[data-tab='{parent.plan.plan_id}']")
    expect(tab).to_have_count(0)
    edited = plan_records(Store(home).audit.events())[edited_plan_id(parent.plan.plan_id)]
    assert dict(zip(edited.plan.symbols, edited.plan.stages[0].weights, strict=True))[name] == 0.125
    assert edited.plan.parent_id == parent.plan.plan_id
    expect(page.locator("[role=tab]")).to_have_count(int(edited.status == "waiting"))


@pytest.mark.nightly
def test_edited_weight_that_a_limit_cut_is_named_on_the_page(serve, look, waiting, tmp_path):
    _, url, _ = serve(copy_home(waiting, tmp_path / "home"))
    page = look(url)
    page.locator("#decisions").scroll_into_view_if_needed()
    page.keyboard.press("e")
    page.get_by_role("button", name="Holdings", exact=True).click()
    page.locator("input.weight:visible").first.fill("30")
    page.get_by_label("Reason (needed to override or reject)").fill("all of it")
    page.locator("[data-weights]:visible").click()
    page.clock.fast_forward(UNDO)
    expect(page.locator("#notice")).to_contain_text("of 30.0% became 25.0% by position_cap")
    expect(page.locator("[role=tabpanel]:visible")).to_contain_text("of 30.0% became 25.0% by position_cap")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("start", "status"), [("As proposed", "waiting"), pytest.param("Holdings", "cleared", marks=pytest.mark.nightly)]
)
def test_keys_act_on_the_edit_whose_plan_is_chosen_where_it_waits(serve, look, waiting, tmp_path, start, status):
    home = copy_home(waiting, tmp_path / "home")
    ((parent, record),) = plan_records(Store(home).audit.events()).items()
    sectors = "".join(f"{name},{name}\n" for name in record.plan.symbols[:-1])  # else each name is a finding
    home.compliance.mkdir(exist_ok=True)
    (home.compliance / "sectors.csv").write_text(f"symbol,sector\n{sectors}")
    _, url, _ = serve(home)
    page = look(url)
    page.locator("#decisions").scroll_into_view_if_needed()
    page.keyboard.press("e")
    page.get_by_role("button", name=start, exact=True).click()
    weight = page.locator("input.weight:visible").first
    weight.fill("1")
    page.get_by_label("Reason (needed to override or reject)").fill("too much of it")
    page.keyboard.press("Escape")
    for key in "ax=se":
        page.keyboard.press(key)
    expect(page.locator("#toast")).to_be_hidden()
    assert weight.input_value() == "1"
    page.keyboard.press("o")
    page.clock.fast_forward(UNDO)
    child = edited_plan_id(parent)
    expect(page.locator(f"[data-tab='{parent}']")).to_have_count(0)
    assert plan_records(Store(home).audit.events())[child].status == status
    if status == "waiting":
        expect(page.locator(f"[data-tab='{child}'][aria-selected=true]")).to_contain_text("edited")
        expect(page.locator("#notice")).to_contain_text("Your edited plan of paper waits")
    else:
        expect(page.locator("#decisions")).to_contain_text("No plan waits")
        expect(page.locator("#notice")).to_be_hidden()


def test_plan_waits_while_marked_undone_or_of_another_policy(serve, look, waiting, tmp_path):
    home = copy_home(waiting, tmp_path / "home")
    _, url, _ = serve(home)
    page = look(url)
    page.locator("#decisions").scroll_into_view_if_needed()
    for key, action, mark in (("s", "skip", "Skipped by"), ("=", "equal", "Judged as good as the holdings by")):
        page.keyboard.press(key)
        page.clock.fast_forward(UNDO)
        expect(page.locator("form[data-decision]")).to_contain_text(mark)
        expect(page.locator(f"[data-do={action}]")).to_have_attribute("aria-disabled", "true")
        expect(page.locator("[role=tabpanel]:not([data-sent])")).to_have_count(1)
        page.keyboard.press(key)
        expect(page.locator("#toast")).to_be_hidden()
    kinds = [event.kind for event in Store(home).audit.events()]
    assert kinds[-2:] == ["skipped", "equal"]
    assert decisions(home)["paper"][0] == "waiting"
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("button", name="Undo").click()
    page.clock.fast_forward(UNDO)
    page.wait_for_timeout(500)
    assert decisions(home)["paper"][0] == "waiting"
    name = read_active(Store(home)).policy
    activate_manually(Store(home), f"{name}/seed-0", "bob", "one seed", now)
    expect(page.locator(".hint.warn")).to_contain_text(f"{name}/seed-0")
    with page.tolerant():
        page.get_by_role("button", name="Approve").click()
        page.clock.fast_forward(UNDO)
        expect(page.locator("[role=tabpanel] .error")).to_contain_text("seed-0")
    assert decisions(home)["paper"][0] == "waiting"
    page.get_by_label("Reason (needed to override or reject)").fill("made by another")
    page.get_by_role("button", name="Reject").click()
    page.keyboard.press("Escape")
    page.clock.fast_forward(UNDO)
    expect(page.locator("#decisions")).to_contain_text("No plan waits")
    assert decisions(home)["paper"][0] == "rejected"


def test_agreement_shows_outcomes_that_come_and_practice_apart(look, changing):
    home, url = changing
    write_outcomes(home, [])
    page = look(url)
    panel = page.locator("#agreement")
    expect(panel).to_contain_text("Nothing to compare yet")
    write_outcomes(home, [], practice=[0.4, 0.2])
    expect(panel.locator(".verdict").first).to_have_text("No decision that counts has an outcome yet.")
    box = panel.locator(".box")
    expect(box.get_by_role("heading")).to_contain_text("Practice: decisions on a replay")
    expect(box.locator(".verdict")).to_contain_text("Your practice overrides: 2 of 2 beat the proposal, +0.30 %")
    write_outcomes(home, [0.9, -0.2, 0.6], practice=[0.4, 0.2])
    expect(panel.locator(".verdict").first).to_contain_text("Your overrides: 2 of 3 beat the proposal, +0.43 %")
    expect(box.get_by_role("row", name="edited weights, against the proposal")).to_contain_text("2 of 2")
    row = panel.get_by_role("row", name="edited weights, against the proposal")
    expect(row.first).to_contain_text("2 of 3")
    assert panel.get_by_role("row", name="too much").count() == 2


@pytest.mark.parametrize("width", [pytest.param(1200, marks=pytest.mark.nightly), 390])
def test_long_reason_leaves_the_figures_of_agreement_in_view(look, changing, width):
    home, url = changing
    write_outcomes(home, [0.9, -0.2, 0.6], reason="x" * 200)
    table = look(url, width=width).locator("#agreement .scroll")
    expect(table).to_contain_text("2 of 3")
    assert table.evaluate("table => table.scrollWidth - table.clientWidth") == 0


def test_load_asks_first_and_activates_the_policy(look, changing):
    home, url = changing
    page = look(url)
    page.get_by_role("button", name="load →").first.click()
    dialog = page.locator("#load")
    expect(dialog).to_contain_text("decides for every account")
    dialog.get_by_label("Reason").fill("try it on paper")
    dialog.get_by_role("button", name="Load").click()
    expect(page.locator("#policies")).to_contain_text("active since")
    active = read_active(Store(home))
    assert active.reason == "try it on paper"
    expect(page.locator(".ticker:visible")).to_contain_text(active.policy)


@pytest.mark.nightly
def test_run_now_launches_the_job_and_shows_its_run(look, changing):
    page = look(changing[1])
    row = page.get_by_role("row", name="dpo_check")
    expect(row).to_contain_text("never")
    row.get_by_role("button", name="Run now").click()
    page.clock.fast_forward(UNDO)
    expect(row).to_contain_text("done", timeout=60_000)


@pytest.mark.parametrize("path", ["/continuous-rl.html", pytest.param("/lab", marks=pytest.mark.nightly)])
def test_page_without_token_is_locked_until_its_token_is_pasted(look, empty_url, path):
    page = look(empty_url, path, token="")
    halt = page.get_by_role("button", name="Halt trading").first
    expect(halt).to_have_attribute("aria-disabled", "true")
    for button in page.locator("[data-post] [type=submit], [data-run-now]").all():
        expect(button).to_have_attribute("aria-disabled", "true")
    page.keyboard.press("h")
    halt.dispatch_event("click")
    expect(page.locator("#halt")).to_be_hidden()
    assert axe_findings(page) == []
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Unlock").click()
    expect(page.locator("#locked")).to_be_hidden()
    page.get_by_role("button", name="Halt trading").first.click()
    expect(page.locator("#halt")).to_be_visible()


def test_page_is_locked_once_the_service_has_another_token(look, empty_url):
    page = look(empty_url)
    page.context.clear_cookies()
    page.keyboard.press("h")
    with page.tolerant():
        page.keyboard.press("Enter")
        expect(page.locator("#locked")).to_be_visible()
    expect(page.locator("#training [type=submit]")).to_have_attribute("aria-disabled", "true")


@pytest.mark.parametrize(
    ("status", "text"), [pytest.param(202, "Launched", marks=pytest.mark.nightly), (409, "Run now")]
)
def test_run_now_answers_at_once_and_after_the_launch(look, empty_url, status, text):
    page, held = look(empty_url), []
    page.route("**/api/scheduler/*/run", lambda route: held.append(route))  # noqa: PLW0108 - not a builtin
    button = page.locator("[data-run-now=dpo_check]")
    button.click()
    expect(button).to_have_text("Launching …")
    expect(button).to_have_attribute("aria-disabled", "true")
    page.clock.fast_forward(UNDO)
    page.evaluate("takePart('schedule', $('[data-part=schedule]').innerHTML.replace('Launching …', 'Run now'))")
    expect(button).to_have_text("Launching …")
    with page.tolerant():
        held[0].fulfill(status=status, json={"task_ids": ["1"], "detail": "nothing is due"})
        expect(button).to_have_text(text)
    expect(page.locator("#notice")).to_be_visible(visible=status == 409)


def test_page_says_why_no_model_proposes(look, shared_url):
    page = look(shared_url)
    expect(page.locator("#proposer option[value=llm]")).to_be_disabled()
    expect(page.locator("#proposer")).to_have_value("optuna")
    expect(page.locator("#proposer-h")).to_contain_text("no endpoint is configured")


@pytest.mark.nightly
def test_search_of_the_page_asks_the_model_and_is_watched_to_its_end(serve, look, tmp_path):
    answer = {"changes": {"max_position_pct": 0.11}, "reason": "smaller bets", "expects": 0.5, "cites_goal": True}
    home, goal = search_home(tmp_path / "home", market()), "less <b>risk</b>"
    with llm_server.serve(llm_server.document(answer)) as server:
        home.llm_file.write_text(f"base_url: {server.base_url}\nmax_seconds_lost: 60\n")
        _, url, _ = serve(home)
        page = look(url)
        page.get_by_text("cuFOLIO only", exact=True).click()
        page.get_by_label("Goal").fill(goal)
        page.get_by_label("Budget, trials").fill("none")
        page.locator("#search-source").select_option("landing")
        expect(page.locator("#proposer")).to_have_value("llm")
        with page.tolerant():
            page.get_by_role("button", name="Start search").click()
            expect(page.locator("#autoresearch .error")).to_contain_text("budget")
        page.get_by_label("Budget, trials").fill("5")
        page.get_by_role("button", name="Start search").click()
        done = page.locator("#autoresearch .done")
        expect(done).to_contain_text("does not train", timeout=60_000)  # the form has timesteps
        expect(page.locator("#autoresearch tbody tr[data-key]")).to_have_count(5, timeout=90_000)
        expect(page.locator("#autoresearch .chip")).not_to_have_text("running", timeout=60_000)
    expect(page.locator("#autoresearch .note").first).to_have_text(f"Goal: {goal}")
    expect(page.locator("#autoresearch tbody tr[data-key='5'] .rest")).to_contain_text(
        f"smaller bets (for the goal: {goal})"
    )
    asked = [line for line in read_session(Store(home).searches.find()).lines if isinstance(line, ModelAsked)]
    assert [(line.proposal, line.outcome, line.cites_goal) for line in asked] == [(5, "proposed", True)]
    home.llm_file.unlink()
    page.locator("#plot-trials").scroll_into_view_if_needed()
    expect(page.locator("#plot-trials .main-svg").first).to_be_attached()
    page.locator("#autoresearch").get_by_role("button", name="Analyze with Omni VLM").click()
    answer = page.locator("#autoresearch .answer")
    expect(answer.locator("footer")).to_contain_text("built-in")
    assert 4 <= answer.locator("li").count() <= 6


def test_chart_is_read_by_the_model_else_computed_with_a_note(serve, look, home):
    write_session(home, a_session(), a_journal(4).lines)
    bullets = [f"{markup} is text" for markup in MARKUP]
    with llm_server.serve(llm_server.document({"bullets": bullets}), llm_server.refusal(MARKUP[0])) as server:
        home.llm_file.write_text(f"base_url: {server.base_url}\nvision_model: seeing\n")
        _, url, _ = serve(home)
        page = look(url)
        page.locator("#plot-trials").scroll_into_view_if_needed()
        expect(page.locator("#plot-trials .main-svg").first).to_be_attached()
        assert server.received == []
        button = page.locator("#autoresearch").get_by_role("button", name="Analyze with Omni VLM")
        answer, note = page.locator("#autoresearch .answer"), page.locator("#autoresearch .answer .warn")
        button.click()
        expect(answer.locator("footer")).to_contain_text("seeing")
        assert answer.locator("li").all_inner_texts() == bullets
        expect(note).to_be_hidden()
        home.llm_file.write_text(f"base_url: {server.base_url}\nvision_model: another\n")
        button.click()
        expect(answer.locator("footer")).to_contain_text("built-in")
        expect(note).to_have_text(f"another gave no reading: the model refused: {MARKUP[0]}")
        assert len(server.received) == 2
    assert page.locator("img, iframe, .answer svg").count() == 0
    assert page.evaluate("window.hacked") is None
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert axe_findings(page) == []


def test_markup_in_goals_journals_reasons_and_names_stays_text(serve, look, built_home, tmp_path):
    markup = " ".join(MARKUP)
    home = copy_home(built_home, tmp_path / "home")
    lines = [
        line.model_copy(update={"reason": markup, "message": markup}) if isinstance(line, TrialJudged) else line
        for line in a_journal(4).lines
    ]
    write_session(home, a_session(goal=markup), lines)
    _, url, _ = serve(home)
    page = look(url)
    goal = page.locator("#autoresearch .note").first
    expect(goal).to_have_text(f"Goal: {markup}")
    stop_trading(Store(home), markup, markup, now)  # comes by the stream
    expect(page.locator(".band.halted")).to_contain_text(markup)
    for summary in page.locator("#autoresearch tbody summary").all():
        summary.click()
    assert page.locator("#autoresearch tbody details[open]").first.inner_text().count(markup) == 2
    assert page.locator("img, iframe, script:not([src]):not([type]), main svg[onload]").count() == 0
    assert page.evaluate("window.hacked") is None
