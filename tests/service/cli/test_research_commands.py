import json
import re

import optuna
import pytest

from nvtrader_pipelines.research.session_report import session_report
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT
from tests.research.sessions import JournalBuilder, a_journal, a_session, write_session
from tests.runs.small_runs import market_home
from tests.service.cli.error_lines import is_one_line_error

ONE, TWO = a_session("20260302-aaaa"), a_session("20260303-bbbb")


@pytest.fixture
def at_home(home, command):
    invoke = command(home)
    return lambda *arguments: invoke("research", *arguments)


@pytest.fixture
def research(home, at_home):
    (home.experiments / "mine.yaml").write_text("name: mine\nagent: {kind: ppo, gamma: 0.5, n_epochs: 5}\n")
    return lambda *arguments: at_home("space", *arguments)


@pytest.fixture
def folders(home):
    """Folders of a finished and of a stopped session."""
    lines = (a_journal().look(0.2, 0.3).lines, a_journal(12).lines)
    return [write_session(home, session, journal) for session, journal in zip((ONE, TWO), lines, strict=True)]


def test_search_on_a_short_history_names_the_sessions_it_needs(tmp_path, command):
    found = command(market_home(tmp_path / "market").home)("research", "start")
    assert found.exit_code == BAD_INPUT
    assert re.search("a search needs 762 usable sessions.*landing has 228", found.stderr)


READING = ("status", "sessions", "journal", "report")


def test_space_lists_knobs_with_bounds_and_base(research):
    found = research()
    assert found.exit_code == 0
    rows = [line.split() for line in found.stdout.splitlines()]
    assert ["learning_rate", "ppo", "1e-05", "0.01", "real", "log", "0.003"] in rows
    assert ["lookback", "env", "5", "60", "whole", "linear", "20"] in rows
    assert ["12", "rows"] in rows


def test_space_around_an_experiment_reports_its_clips(research):
    document = json.loads(research("--mode", "unified", "--like", "mine", "--json").stdout)
    assert (document["mode"], document["base"], len(document["knobs"])) == ("unified", "mine", 16)
    assert document["base_clips"] == [{"knob": "gamma", "proposed": 0.5, "used": 0.9}]
    assert {each["knob"]: each["high"] for each in document["knobs"]}["max_position_pct"] == 0.25
    assert len(document["notices"]) == 2  # position limit, allocator


def test_space_of_a_file_has_its_paths(research, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("agent.clip_range: {low: 0.1, high: 0.4}\n")
    (knob,) = json.loads(research("--space", str(path), "--json").stdout)["knobs"]
    assert (knob["knob"], knob["low"], knob["high"], knob["base"]) == ("agent.clip_range", 0.1, 0.4, 0.2)
    path.write_text("agent.clip_rnge: {low: 0.1, high: 0.4}\n")
    refused = research("--space", str(path))
    assert refused.exit_code == BAD_INPUT
    assert is_one_line_error(refused.stderr)


def test_json_schema_has_a_property_per_knob(research):
    document = json.loads(research("--json-schema", "--mode", "cufolio_only").stdout)
    assert list(document["properties"]) == ["cvar_alpha", "max_position_pct", "n_scenarios", "cufolio_hold_days"]


def test_space_around_an_unknown_experiment_exits_with_3(research):
    refused = research("--like", "mien")
    assert refused.exit_code == BAD_INPUT
    assert is_one_line_error(refused.stderr)


@pytest.mark.parametrize("name", ["status", "journal", "report", "stop"])
def test_command_without_a_session_exits_with_3(at_home, name):
    refused = at_home(name)
    assert refused.exit_code == BAD_INPUT
    assert is_one_line_error(refused.stderr)


def test_home_without_sessions_has_an_empty_list(at_home):
    assert at_home("sessions").exit_code == 0
    assert json.loads(at_home("sessions", "--json").stdout) == []


@pytest.mark.slow
@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize("name", READING)
@pytest.mark.parametrize("session", ["20260302", "20260303"])
def test_reading_command_prints_a_page_about_a_session(at_home, name, session):
    found = at_home(name, *([] if name == "sessions" else [session]))
    assert found.exit_code == 0
    assert session in found.stdout or name == "journal"


@pytest.mark.usefixtures("folders")
def test_status_shows_the_last_session_by_default(at_home):
    document = json.loads(at_home("status", "--json").stdout)
    assert (document["summary"]["session_id"], document["summary"]["n_trials"]) == ("20260303-bbbb", 12)


@pytest.mark.usefixtures("folders")
def test_sessions_are_listed_as_csv_newest_first(at_home):
    head, *rows = at_home("sessions", "--format", "csv").stdout.splitlines()
    assert [row.split(",")[0] for row in rows] == ["20260303-bbbb", "20260302-aaaa"]
    assert head.startswith("session_id,state,outcome,n_trials,budget,base_sharpe,best_sharpe")


@pytest.mark.usefixtures("folders")
def test_journal_is_written_as_json_and_csv(at_home):
    rows = json.loads(at_home("journal", "20260302", "--json").stdout)
    assert [rows[0]["event"], rows[-1]["event"]] == ["base", "verdict"]
    assert set(rows[1]["changed"]) == {"lookback", "learning_rate", "gamma"}
    assert len(at_home("journal", "20260302", "--format", "csv").stdout.splitlines()) == len(rows) + 1


def test_journal_shows_answers_of_the_model(home, at_home):
    builder = JournalBuilder().answer(changes={"gamma": 0.95}, reason="[red] longer memory").trial(0.1, gamma=0.95)
    write_session(home, ONE, builder.answer("late", message="no answer within 6 s").trial(0.1).lines)
    lines = [line.split() for line in at_home("journal").stdout.splitlines()]
    assert [line[:3] for line in lines if "model" in line] == [["1", "model", "proposed"], ["2", "model", "late"]]
    rows = json.loads(at_home("journal", "--json").stdout)
    assert [row["message"] for row in rows if row["event"] == "model"] == [
        "[red] longer memory",
        "no answer within 6 s",
    ]
    assert json.loads(at_home("status", "--json").stdout)["n_lines"] == {"base": 1, "trial": 2, "model": 2}


@pytest.mark.slow
def test_report_is_written_with_its_picture(at_home, folders):
    document = json.loads(at_home("report", "--json").stdout)
    assert document["markdown"] == session_report(TWO, a_journal(12).lines) == folders[1].report.read_text()
    assert (document["path"], document["picture"]) == (str(folders[1].report), str(folders[1].picture))


def test_stop_of_a_running_session_leaves_a_request(at_home, folders):
    with folders[0].lock():
        assert json.loads(at_home("stop", "--json").stdout)["session_id"] == "20260302-aaaa"
    assert folders[0].stop_request.exists()


def test_stop_of_a_stopped_session_exits_with_3(at_home, folders):
    refused = at_home("stop", "20260303")
    assert refused.exit_code == BAD_INPUT
    assert is_one_line_error(refused.stderr)
    assert not folders[1].stop_request.exists()


@pytest.mark.slow
def test_damaged_session_exits_with_3_and_is_named_in_the_list(at_home, folders):
    folders[0].settings.write_text("{}")
    refused = at_home("status", "20260302")
    assert refused.exit_code == BAD_INPUT
    assert is_one_line_error(refused.stderr)
    assert str(folders[0].settings) in at_home("sessions", "--json").stderr


@pytest.mark.slow
@pytest.mark.usefixtures("folders")
def test_trials_are_exported_as_a_study_of_optuna(at_home, tmp_path):
    path = tmp_path / "study.db"
    found = at_home("export", "20260303", "--optuna", str(path), "--json")
    assert json.loads(found.stdout) == {"session_id": "20260303-bbbb", "file": str(path)}
    assert len(optuna.load_study(study_name="study", storage=f"sqlite:///{path}").trials) == 13
    assert at_home("export", "20260303", "--optuna", str(path)).exit_code == BAD_INPUT  # the file exists
