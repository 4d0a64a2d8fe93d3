"""The report: a self-contained page with all results, and commands for missing parts."""

import datetime as dt
import json
from html.parser import HTMLParser
from urllib.parse import unquote_to_bytes

import polars as pl
import pytest

from nvtrader_pipelines.promotion.findings import OVERFITTING as OVERFITTING_FIGURE
from nvtrader_pipelines.promotion.findings import PromotionFinding
from nvtrader_pipelines.promotion.gate import PromotionGate
from nvtrader_pipelines.service.documents.home_facts import HomeReport
from nvtrader_pipelines.service.report.contents import Grid, Part
from nvtrader_pipelines.service.report.evidence import N_ROWS, Evidence
from nvtrader_pipelines.service.report.report import render_page, summarize_verdict, with_minus_sign, write_report
from nvtrader_pipelines.service.report.report_parts import (
    headline,
    portfolio,
    prudex,
    runs_and_markets,
    scoreboard,
    stress,
)
from nvtrader_pipelines.service.report.tear_sheet_part import tear_sheets
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    ACTIVE_POLICY,
    EQUITY_CURVES,
    EVALUATIONS,
    OVERFITTING,
    PORTFOLIO_STATE,
    PROMOTION_DECISIONS,
    PRUDEX,
    RATIO_CURVE,
    REBALANCE_PLAN,
    RUNS,
    SCOREBOARD,
    STRESS,
    VALIDATION,
)
from tests.homes import KEY
from tests.storage.table_rows import AT, conform

NEEDED = [
    "headline",
    "runs",
    "equity",
    "tear-sheets",
    "time",
    "validation",
    "regimes",
    "prudex",
    "stress",
    "scoreboard",
]
PARTS = [*NEEDED, "portfolio", "warnings"]


class Page(HTMLParser):
    """Text, tags, ids and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        own = dict(attrs)
        self.tags.append(tag)
        self.loads += [own[name] or "" for name in ("src", "href", "srcset", "data", "action") if name in own]
        self.ids += [own["id"] or ""] if "id" in own else []
        assert not any(name.startswith("on") for name in own)

    def handle_data(self, data):
        self.text += data


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


def test_page_is_self_contained(reported):
    page, _ = reported
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(page.tags)
    assert all(each.startswith(("data:image/svg+xml,", "#")) for each in page.loads)
    assert "url(" not in page.text
    assert "@import" not in page.text


def test_every_link_leads_to_a_part(reported):
    page, _ = reported
    assert {each[1:] for each in page.loads if each.startswith("#")} == set(page.ids) == {*PARTS, "reading"}


def test_report_of_built_home_has_all_parts(reported):
    _, facts = reported
    assert facts.parts == tuple(PARTS)
    assert facts.missing == {}
    assert facts.runs == 1


def test_page_holds_every_picture_of_the_latest_run(reported, built_home):
    page, _ = reported
    shown = {unquote_to_bytes(each.partition(",")[2]) for each in page.loads if each.startswith("data:")}
    own = {"action_logs", "reward_decomposition", "trained_policy", "regimes"}  # not part of the verdict
    files = [path for path in built_home.pictures.rglob("*.svg") if own.isdisjoint(path.parts)]
    assert len(files) > 5
    stored = {path.read_bytes() for path in files}
    assert stored < shown
    assert len(shown) == len(stored) + 1  # drawn for the page: the rolling figures of the run


def test_page_names_run_data_findings_and_warnings(reported, built_home):
    page, facts = reported
    run = Store(built_home).policies.read_latest(KEY)
    assert run.run_id[:8] in page.text
    assert "landing, from 2017" in page.text
    assert [each.passed for each in facts.findings] == [False] * 4
    assert all(with_minus_sign(each.sentence) in page.text for each in facts.findings)
    assert "The best ranked misses a threshold" in page.text
    assert all(warning in page.text for warning in run.warnings)


@pytest.mark.parametrize("settings", [{}, {"require_deflated": True, "least_sessions": 40}])
def test_page_shows_rule_of_the_gate_in_force_once(empty, settings):
    if settings:
        empty.promotion_file.parent.mkdir(parents=True)
        empty.promotion_file.write_text(json.dumps(settings))
    path = write_report(Store(empty), empty.report).path
    page = Page(path.read_text())
    assert page.text.count(PromotionGate(**settings).requirement) == 1
    assert "promotion needs" not in page.text


def test_headline_holds_figures_of_the_validation(built_home):
    evidence = Evidence.of(Store(built_home))
    (row,) = evidence.validation.filter(period="from_2017", against="best_baseline").to_dicts()
    first = headline(evidence).grids[0]
    assert first.rows[0][0] == "tiny"
    assert f"{row['sharpe']:+.2f}".replace("-", "\u2212") in first.rows[0][2]
    assert first.rows[0][3] == f"{row['deflated_sharpe']:.2f}"


def test_stress_grid_holds_every_scenario_and_account(built_home):
    evidence = Evidence.of(Store(built_home))
    rows = evidence.store.tables.read(STRESS)
    ((grid,),) = [part.grids for part in stress(evidence).parts]
    accounts = rows.filter(pl.col("kind") != "policy")["policy"].unique()
    assert grid.columns[:2] == ["scenario", "tiny"]
    assert sorted(grid.columns[1:]) == sorted(accounts)
    (calm,) = rows.filter(policy="tiny", scenario="unstressed")["total_return"]
    assert grid.rows[0][:2] == ["unstressed", f"{calm:+.1%}".replace("-", "\u2212")]
    assert len(grid.rows) == rows["scenario"].n_unique() > 5


def test_report_of_empty_home_shows_a_command_per_part(empty, command):
    found = command(empty)("report")
    assert found.exit_code == 0, found.stderr
    *missing, path = found.stdout.splitlines()
    assert path == str(empty.report)
    assert all(line.endswith(": nvtrader materialize") for line in missing)
    page = Page(empty.report.read_text())
    assert "No completed run yet" in page.text
    assert page.text.count("Nothing yet: run nvtrader materialize.") == len(missing) == len(NEEDED)
    assert set(page.ids) == {*PARTS, "reading"}


def test_report_with_output_writes_only_that_file(empty, command, tmp_path):
    path = tmp_path / "elsewhere" / "page.html"
    path.parent.mkdir()
    found = command(empty)("report", "-o", str(path), "--json")
    facts = json.loads(found.stdout)
    assert facts["path"] == str(path)
    assert facts["bytes"] == len(path.read_bytes())
    assert (facts["findings"], facts["parts"]) == ([], ["portfolio", "warnings"])
    assert not empty.report.exists()


def test_names_are_escaped_in_html(empty):
    odd = "<script>alert('x')</script>&amp;"
    part = Part("odd", odd, odd, [Grid(odd, [odd], [[odd]])], sentences=[odd])
    page = Page(render_page(Evidence.of(Store(empty)), [part], []))
    assert "script" not in page.tags
    assert page.text.count(odd) == 6  # title, lead, sentence, grid, column, cell


def test_scoreboard_part_has_a_grid_per_contest_and_unranked_entrants(empty):
    stocks = {"contest": "a", "source": "sample", "calendar": "XNYS"}
    coins = {"contest": "b", "source": "coins", "calendar": "24/7"}
    rows = [
        stocks | {"rank": 2, "entrant": "slow", "kind": "run", "sharpe": -0.5},
        stocks | {"rank": 1, "entrant": "rule", "kind": "baseline", "sharpe": 0.5},
        coins | {"rank": 1, "entrant": "mine", "kind": "weights", "sharpe": 1.0},
        {
            "contest": None,
            "source": None,
            "rank": None,
            "entrant": "late",
            "sharpe": None,
            "note": "trained on the test",
        },
    ]
    Store(empty).tables.replace(SCOREBOARD, conform(SCOREBOARD, pl.DataFrame(rows, infer_schema_length=None)), {})
    *contests, left = scoreboard(Evidence.of(Store(empty))).grids
    assert [[row[0] for row in grid.rows] for grid in contests] == [["1. rule", "2. slow"], ["1. mine"]]
    assert [grid.title.split(",")[0] for grid in contests] == ["sample (XNYS)", "coins (24/7)"]
    assert contests[0].rows[1][1].startswith("\u22120.50")
    assert left.rows == [["late", "trained on the test"]]


RUN_KEYS = {"a": ("ppo", "sample", False), "b": ("ppo", "landing", False), "c": ("cv", "sample", True)}
SPANS = {"a": (dt.date(2015, 1, 5), dt.date(2016, 1, 4)), "b": (dt.date(2014, 1, 6), dt.date(2016, 1, 4))}


def write_table(store, table, rows):
    store.tables.replace(table, conform(table, pl.DataFrame(rows, infer_schema_length=None)), {})


@pytest.fixture
def evaluated_home(empty):
    """A home with a run on two markets and one for validation only, none before 2010."""
    store = Store(empty)
    facts = {"kind": "walk_forward", "finished_at": AT, "n_policies": 1, "warnings": []}
    spans = {run_id: SPANS.get(run_id, SPANS["a"]) for run_id in RUN_KEYS}
    runs = [
        {"run_id": run_id, "experiment": name, "source": source, "validation_only": only, **facts}
        | {"spec_hash": run_id * 64, "partition_key": f"{name}@{run_id}", "code_version": "1"}
        for run_id, (name, source, only) in RUN_KEYS.items()
    ]
    write_table(store, RUNS, runs)
    figures = {"sharpe": -1.05, "max_drawdown": 0.2, "turnover_per_year": 1.0, "cost_per_year": 0.0}
    verdicts, trials = [], []
    for run_id, (name, source, _) in RUN_KEYS.items():
        own = {"run_id": run_id, "experiment": name, "spec_hash": run_id * 64}
        window = dict(zip(("first_session", "last_session"), spans[run_id], strict=True))
        verdicts.append({**own, "policy": name, "kind": "ensemble", "period": "all", **window, **figures})
        for period in ("all", "before_2010"):
            dates = window if period == "all" else dict.fromkeys(window)
            each = {**own, "source": source, "period": period, "n_trials": 2, **dates}
            trials += [{**each, "against": against} for against in ("zero", "best_baseline", "anchor")]
    write_table(store, EVALUATIONS, verdicts)
    write_table(store, VALIDATION, trials)
    chance = {"source": "sample", "period": "all", "probability_of_overfitting": 0.0}
    write_table(store, OVERFITTING, [{**chance, "against": against} for against in ("best_baseline", "anchor")])
    return empty


def test_report_labels_markets_and_validation_only_runs(evaluated_home):
    evidence = Evidence.of(Store(evaluated_home))
    runs = runs_and_markets(evidence).grids[0]
    assert [row[:2] for row in runs.rows] == [
        ["ppo on sample", "sample"],
        ["ppo on landing", "landing"],
        ["cv (validation only)", "sample"],
    ]
    assert [row[4] for row in runs.rows] == ["1", "1", "1"]
    (sample,) = [grid for grid in headline(evidence).grids if grid.title.startswith("sample")]
    assert {row[0] for row in sample.rows} == {"ppo on sample", "cv (validation only)"}


def test_grids_hold_one_span_of_sessions_each(evaluated_home):
    titles = [grid.title for grid in headline(Evidence.of(Store(evaluated_home))).grids]
    assert not any("None" in title for title in titles)
    assert titles[-2:] == [
        "Policies and baselines: landing, all (2014-01-06 to 2016-01-04)",
        "Policies and baselines: sample, all (2015-01-05 to 2016-01-04)",
    ]


def test_overfitting_probability_of_zero_is_shown(evaluated_home):
    (sample,) = [grid for grid in headline(Evidence.of(Store(evaluated_home))).grids if grid.title.startswith("sample")]
    assert sample.title.endswith("probability of overfitting 0.00 over best baseline, 0.00 over anchor")


def test_prudex_part_shows_scores_and_left_out_runs(evaluated_home):
    axes = {"axis": "diversity", "measure": "axis", "statistic": "measures_reported", "reported": True}
    scores = [
        {**axes, "policy": policy, "kind": kind, "score": score}
        for policy, kind, score in (("equal_weight", "baseline", 50.0), ("ppo", "ensemble", 61.7))
    ]
    write_table(Store(evaluated_home), PRUDEX, scores)
    part = prudex(Evidence.of(Store(evaluated_home)))
    assert [row[:2] for row in part.grids[0].rows] == [["ppo", "62"], ["equal_weight", "50"]]
    assert "no evidence of skill" in part.lead
    assert part.sentences == ["Left out: cv (validation only); also trained on sessions after their tests."]


def test_portfolio_part_shows_policy_last_decision_and_accounts(evaluated_home):
    store, day = Store(evaluated_home), dt.date(2016, 1, 4)
    own = {"policy": "ppo", "run_id": "a" * 16, "spec_hash": "a" * 64}
    write_table(
        store, ACTIVE_POLICY, [{**own, "active": active, "by": "ann", "activated_at": AT} for active in (True, False)]
    )
    write_table(store, PROMOTION_DECISIONS, [{**own, "sentence": "ppo is not promoted", "considered_at": AT}])
    state = {
        **own,
        "account": "paper",
        "year": 2016,
        "session": day,
        "value": 1234567.0,
        "equity": 1.23,
        "drawdown": 0.1,
    }
    write_table(store, PORTFOLIO_STATE, [{**state, "cash": 0.05}, {**state, "session": SPANS["a"][0], "value": 1.0}])
    write_table(store, REBALANCE_PLAN, [{**own, "account": "paper", "year": 2016, "session": day, "status": "waiting"}])
    part = portfolio(Evidence.of(Store(evaluated_home)))
    assert part.sentences == [
        f"ppo of run aaaaaaaa trades, activated by ann on {AT:%Y-%m-%d}.",
        "Last decision of the gate: ppo is not promoted.",
    ]
    assert part.grids[0].rows == [
        ["paper", "2016-01-04", "1,234,567", "1.2300", "10.0%", "5.0%", "2016-01-04, waiting"]
    ]


def test_with_minus_sign_keeps_hyphens_of_words_and_dates():
    assert (
        with_minus_sign("out-of-sample -1.05 of ppo-2 on 2015-01-05")
        == "out-of-sample \u22121.05 of ppo-2 on 2015-01-05"
    )


def test_value_near_threshold_is_shown_with_more_digits(evaluated_home):
    near = PromotionFinding(OVERFITTING_FIGURE, "sample", "all", "anchor", 0.4991, passed=True, sentence="near")
    evidence = Evidence.of(Store(evaluated_home))
    assert "passes both thresholds: deflated probability at least 0.95" in summarize_verdict(evidence, [near])
    assert "0.499" in Page(render_page(evidence, [], [near])).text


def test_variants_follow_each_other_and_rows_beyond_twelve_are_collapsed(empty):
    store = Store(empty)
    empty.experiments.mkdir(parents=True)
    (empty.experiments / "sweep.yaml").write_text(
        "name: sweep\ndesign: {kind: ablation, field: environment.turnover_cost_bps, values: [0.0, 5.0]}\n"
    )
    names = ["sweep-turnover-cost-bps-0", *(f"own-{i}" for i in range(13)), "sweep-turnover-cost-bps-5"]
    keys = [{"run_id": f"{i:016x}", "experiment": name, "source": "sample"} for i, name in enumerate(names)]
    facts = {"kind": "walk_forward", "finished_at": AT, "n_policies": 1, "warnings": [], "validation_only": False}
    write_table(
        store, RUNS, [{**key, **facts, "spec_hash": "a" * 64, "partition_key": key["experiment"]} for key in keys]
    )
    write_table(
        store,
        RATIO_CURVE,
        [
            {**key, "spec_hash": "a" * 64, "finished_at": AT, "period": "all", "rank": i + 1}
            for i, key in enumerate(keys)
        ],
    )
    evidence = Evidence.of(store)
    variants = [name for name in names if name.startswith("sweep")]
    assert evidence.latest["experiment"].to_list() == [*variants, *names[1:-1]]
    grid = runs_and_markets(evidence).grids[0]
    assert list(grid.groups[:3]) == ["sweep: 2 variants"] * 2 + [""]
    assert grid.n_collapsed == len(names) - N_ROWS
    assert [line["heading"] for line in grid.lines[:3]] == ["sweep: 2 variants", "", ""]
    page = Page(render_page(evidence, [runs_and_markets(evidence)], []))
    assert f"… {grid.n_collapsed} more" in page.text
    (sentence,) = evidence.omitted_runs_note
    assert sentence.startswith("… 7 more experiments of lower rank: own-6, ")


def test_cards_name_market_period_and_sessions(reported):
    page, _ = reported
    assert page.text.count("landing, reported period from 2017 (2017-") == 4


def test_tear_sheet_part_holds_returns_by_month_and_drawdowns(built_home):
    evidence = Evidence.of(Store(built_home))
    (part,) = tear_sheets(evidence).parts
    months, drawdowns = part.grids
    run_id = evidence.latest["run_id"][0]
    curve = evidence.store.tables.read(EQUITY_CURVES, {"run_id": [run_id], "kind": ["ensemble"]}).sort("session")
    january = curve.filter(pl.col("session").dt.year() == 2017, pl.col("session").dt.month() == 1)
    growth = (january["net_return"] + 1.0).product() - 1.0
    (row,) = [row for row in months.rows if row[0] == "2017"]
    assert row[1] == f"{100.0 * growth:.1f}".replace("-", "\u2212")
    assert drawdowns.rows[0][1] == f"{curve['drawdown'].max():.1%}"
    assert len(months.columns) == len(months.shades[0]) == 14
