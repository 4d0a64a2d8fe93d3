import json

import polars as pl
import pytest

from nvtrader_pipelines.evaluation.formats import UNKNOWN
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, FAILED
from nvtrader_pipelines.storage.tables import SCOREBOARD
from tests.homes import small_home
from tests.service.cli.error_lines import is_one_line_error
from tests.storage.table_rows import conform


def test_scoreboard_ranks_experiment_and_baselines_by_sharpe(invoke):
    rows = json.loads(invoke("scoreboard", "--json").stdout)
    assert {row["entrant"] for row in rows} == {"tiny", "equal_weight", "buy_and_hold", "minimum_variance", "mean_cvar"}
    assert sorted(row["rank"] for row in rows) == [1, 2, 3, 4, 5]
    assert len({row["contest"] for row in rows}) == 1
    assert all(isinstance(row[name], float) for row in rows for name in ("sortino", "calmar"))
    assert [row["sharpe"] for row in rows] == sorted((row["sharpe"] for row in rows), reverse=True)


def test_scoreboard_prints_a_table_per_contest(invoke):
    found = invoke("scoreboard").stdout
    assert found.startswith("contest common: landing (XNYS), ")
    for text in ("net Sharpe", "Sharpe 95 %", "information ratio", "deflated", "tiny", "minimum_variance", "sessions)"):
        assert text in found


def test_history_holds_all_scorings_of_one_entrant(invoke):
    rows = json.loads(invoke("scoreboard", "--history", "tiny", "--json").stdout)
    assert {row["entrant"] for row in rows} == {"tiny"}
    assert "tiny: all scorings" in invoke("scoreboard", "--history", "tiny").stdout


@pytest.mark.slow
def test_markup_in_names_and_notes_is_printed_verbatim(tmp_path, command):
    home = small_home(tmp_path / "home")
    home.entrants.mkdir(parents=True, exist_ok=True)
    (home.entrants / "odd[b].yaml").write_text("kind: weights")
    (home.entrants / "even.yaml").write_text("kind: run\nrun: '[/b]'")
    assert command(home)("scoreboard", "update").exit_code == FAILED
    odd, even = (command(home)("scoreboard", "--history", name) for name in ("odd[b]", "even"))
    assert (odd.exit_code, even.exit_code) == (0, 0)
    assert "odd[b]: all scorings" in odd.stdout
    assert "[/b]" in even.stdout


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("update",), ("--contest", "common")])
def test_scoring_of_refused_entrants_only_exits_with_1_and_lists_reasons(tmp_path, command, arguments):
    home = small_home(tmp_path / "home")
    home.entrants.mkdir(parents=True, exist_ok=True)
    (home.entrants / "thirds.yaml").write_text("kind: weights")
    (home.entrants / "thirds.csv").write_text("date,AAPL\n2014-12-31,much\n")
    found = command(home)("scoreboard", *arguments)
    assert found.exit_code == FAILED
    assert "not ranked: thirds: " in found.stdout
    assert "no entrant is ranked" in found.stderr
    rows = json.loads(command(home)("scoreboard", *arguments, "--json").stdout)
    assert [(row["entrant"], row["rank"]) for row in rows] == [("thirds", None)]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("update",), ("--contest", "reported")])
def test_scoring_without_any_entrant_exits_with_1_and_says_so(tmp_path, command, arguments):
    found = command(small_home(tmp_path / "home"))("scoreboard", *arguments)
    assert found.exit_code == FAILED
    assert "no entrant is on the market of this contest" in found.stderr


def test_contest_of_few_sessions_has_no_ranks_and_no_annualized_figures(store, command):
    figures = {"sharpe": 9.0, "sharpe_low": 1.0, "sharpe_high": 17.0, "cagr": 3.0, "turnover_per_year": 8.0}
    names = {"contest": "c" * 16, "contest_name": "short", "source": "sample", "n_sessions": 6, "max_drawdown": 0.01}
    rows = [names | figures | {"entrant": name, "kind": "run", "rank": i + 1} for i, name in enumerate(("one", "two"))]
    store.tables.replace(SCOREBOARD, conform(SCOREBOARD, pl.DataFrame(rows)), {})
    invoke = command(store.home)
    found = json.loads(invoke("scoreboard", "--json").stdout)
    assert {row[name] for row in found for name in (*figures, "rank")} == {None}
    assert [row["max_drawdown"] for row in found] == [0.01, 0.01]
    shown = invoke("scoreboard").stdout
    assert "too short for annualized figures: 6 of 63 sessions" in shown
    lines = [line.split()[:3] for line in shown.splitlines()]
    assert [UNKNOWN, "one", UNKNOWN] in lines


def test_history_of_unknown_entrant_exits_with_3_and_nearest_name(invoke):
    found = invoke("scoreboard", "--history", "tinny")
    assert found.exit_code == BAD_INPUT
    assert is_one_line_error(found.stderr)
    assert "did you mean 'tiny'" in found.stderr


@pytest.mark.parametrize("arguments", [("scoreboard",), ("scoreboard", "--json"), ("scoreboard", "--history", "tiny")])
def test_scoreboard_of_empty_home_exits_with_3_and_next_command(tmp_path, command, arguments):
    found = command(small_home(tmp_path / "home"))(*arguments)
    assert found.exit_code == BAD_INPUT
    assert "`nvtrader materialize`" in found.stderr
    if "--json" in arguments:
        assert json.loads(found.stderr)["exit_code"] == BAD_INPUT
    else:
        assert is_one_line_error(found.stderr)
