"""The report: scoreboard, tear sheets, verdict and warnings on one self-contained page."""

import datetime as dt
import json
from html.parser import HTMLParser
from urllib.parse import unquote_to_bytes

import polars as pl
import pytest

from nvtrader_pipelines.evaluation.findings import DEFLATED, PromotionFinding
from nvtrader_pipelines.evaluation.formats import bounds, number, percent
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.runs.run_pictures import tear_sheet_picture
from nvtrader_pipelines.scoreboard.board import read_ranking
from nvtrader_pipelines.service.documents.home_facts import HomeReport
from nvtrader_pipelines.service.report import N_SHEETS, best_ranked, summarize_verdict, write_report
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, RUNS, SCOREBOARD
from tests.homes import KEY, run_of
from tests.storage.table_rows import AT, conform

PARTS = ("verdict", "scoreboard", "tear-sheets", "warnings")


class Page(HTMLParser):
    """Text, tags, ids, links and table rows of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.rows: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        own = dict(attrs)
        self.tags.append(tag)
        self.rows += [""] if tag == "tr" else []
        self.loads += [own[name] or "" for name in ("src", "href", "srcset", "data", "action") if name in own]
        self.ids += [own["id"] or ""] if "id" in own else []
        assert not any(name.startswith("on") for name in own)

    def handle_data(self, data):
        self.text += data
        self.rows[-1:] = [row + data for row in self.rows[-1:]]


@pytest.fixture(scope="module")
def reported(built_home, tmp_path_factory) -> tuple[Page, HomeReport]:
    """The page of the built home, and its facts."""
    facts = write_report(Store(built_home), tmp_path_factory.mktemp("report") / "deep" / "report.html")
    text = facts.path.read_text()
    assert len(text.encode()) == facts.bytes
    return Page(text), facts


@pytest.fixture
def empty(tmp_path):
    return Home(tmp_path)


def write_table(store, table, rows):
    store.tables.replace(table, conform(table, pl.DataFrame(rows, infer_schema_length=None)), {})


def test_page_is_self_contained(reported):
    page, _ = reported
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert all(load.startswith(("data:image/svg+xml,", "#")) for load in page.loads)
    assert "url(" not in page.text
    assert "@import" not in page.text


def test_every_link_leads_to_a_section(reported):
    page, _ = reported
    assert {load[1:] for load in page.loads if load.startswith("#")} <= set(page.ids)
    assert set(PARTS) <= set(page.ids)


def test_report_of_built_home_has_all_parts(reported):
    _, facts = reported
    assert facts.parts == PARTS
    assert facts.missing == {}
    assert facts.runs == 1


def test_accounts_have_the_figures_of_the_scoreboard(reported, built_home):
    page, _ = reported
    ranking = read_ranking(Store(built_home)).to_dicts()
    shown = [row for row in page.rows if "Max DD" not in row]
    for row, text in zip(ranking, shown, strict=True):
        assert text.startswith(f"{row['rank']}{row['entrant'].replace('_', ' ')}")
        assert f"{number(row['sharpe'])} {bounds(row, 'sharpe')}" in text
        assert percent(row["max_drawdown"], 0) in text


def test_tear_sheet_of_the_best_run_is_embedded(reported, built_home):
    page, _ = reported
    store = Store(built_home)
    run_id = run_of(store).run_id
    (picture,) = [unquote_to_bytes(load.partition(",")[2]) for load in page.loads if load.startswith("data:")]
    assert picture == tear_sheet_picture(store, PolicyRef(run_id, "tiny"))[1].svg()
    assert run_id in page.ids
    assert page.loads.count(f"#{run_id}") == 3  # of the rail, the entrant's name and its tear sheet


def test_page_holds_findings_and_warnings(reported, built_home):
    page, facts = reported
    assert [finding.passed for finding in facts.findings] == [False] * 4
    assert all(finding.sentence in page.text for finding in facts.findings)
    assert all(warning in page.text for warning in Store(built_home).policies.read_latest(KEY).warnings)


def test_best_ranked_are_runs_with_sessions_once_each(empty):
    store = Store(empty)
    day = dt.date(2016, 1, 4)
    write_table(
        store,
        EQUITY_CURVES,
        [
            {"spec_hash": "a" * 64, "run_id": f"{i:016x}", "policy": policy, "kind": kind, "session": day, "fold": 0}
            for i in range(12)
            for policy, kind in ((f"own-{i}", "ensemble"), (f"own-{i}/seed-0", "policy"))
        ],
    )
    ranks = [
        (20, 1, "run"),
        (3, 2, "run"),
        (1, 3, "baseline"),
        (4, None, "run"),
        *((i, i, "run") for i in range(3, 12)),
    ]
    rows = [{"run_id": f"{i:016x}", "rank": rank, "kind": kind, "entrant": f"own-{i}"} for i, rank, kind in ranks]
    best = best_ranked(store, conform(SCOREBOARD, pl.DataFrame(rows, infer_schema_length=None)))
    assert best["policy"].to_list() == [f"own-{i}" for i in range(3, 3 + N_SHEETS)]


def test_report_of_empty_home_shows_a_command_per_part(empty, command):
    found = command(empty)("report")
    assert found.exit_code == 0, found.stderr
    *missing, path = found.stdout.splitlines()
    assert path == str(empty.report)
    assert all(line.endswith(": nvtrader materialize") for line in missing)
    page = Page(empty.report.read_text())
    assert page.text.count("Run nvtrader materialize.") == len(missing) == len(PARTS) - 1
    assert set(PARTS) <= set(page.ids)


def test_report_with_output_writes_only_that_file(empty, command, tmp_path):
    path = tmp_path / "elsewhere" / "page.html"
    path.parent.mkdir()
    facts = json.loads(command(empty)("report", "-o", str(path), "--json").stdout)
    assert facts["path"] == str(path)
    assert facts["bytes"] == len(path.read_bytes())
    assert (facts["findings"], facts["parts"]) == ([], ["warnings"])
    assert not empty.report.exists()


@pytest.mark.slow
def test_names_are_escaped_in_html(empty):
    odd, store = "<script>alert('x')</script>&amp;", Store(empty)
    run = {"spec_hash": "a" * 64, "run_id": "b" * 16, "kind": "walk_forward", "finished_at": AT, "warnings": [odd]}
    entrant = {"contest": odd, "contest_name": odd, "source": odd, "entrant": odd, "kind": "run", "note": odd}
    write_table(store, RUNS, [{**run, "experiment": odd, "source": odd, "partition_key": odd}])
    write_table(store, SCOREBOARD, [{**entrant, "run_id": run["run_id"], "rank": 1}])
    page = Page(write_report(store, empty.report).path.read_text())
    assert "script" not in page.tags
    assert page.text.count(odd) == 5  # warning, contest, market, entrant, note


@pytest.mark.parametrize(("passed", "words"), [((True, True), "passes both"), ((True, False), "misses")])
def test_verdict_passes_only_with_every_finding(passed, words):
    runs = pl.DataFrame({"experiment": ["ppo", "ppo"], "finished_at": [AT, AT]})
    findings = [PromotionFinding(DEFLATED, "sample", "all", "anchor", 0.9, passed=ok, sentence="") for ok in passed]
    summary = summarize_verdict(runs, findings)
    assert "2 completed runs of 1 experiment" in summary
    assert words in summary
