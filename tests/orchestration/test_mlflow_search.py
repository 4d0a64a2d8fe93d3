import shutil

import pytest

from nvtrader_pipelines.orchestration.mlflow_search import track_session
from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.home import Home
from tests.research.sessions import a_journal, a_session

SESSION = a_session(goal="less turnover")
LINES = a_journal(29).trial(0.4, lookback=30).rerun("t30", None, None).nothing_found().lines


@pytest.fixture
def home(built_home, tmp_path) -> Home:
    """A home with a copy of an MLflow store, since a new one takes seconds to make."""
    home = Home(tmp_path / "home")
    home.mlflow.mkdir(parents=True)
    shutil.copy(built_home.mlflow_database, home.mlflow_database)
    return home


@pytest.fixture
def track(home):
    """Function that logs lines after those of an earlier process, and returns the lines and the warnings."""
    warnings = []
    return lambda lines, before=(): (list(track_session(home, SESSION, before, lines, warnings.append)), warnings)


def runs_of(home):
    """Run of the session, and those of its trials by number."""
    client, experiment_id, _ = MlflowTracking.at(home).open()
    (session,) = client.search_runs([experiment_id], f"tags.`nvtrader.run_id` = '{SESSION.session_id}'")
    nested = client.search_runs([experiment_id], f"tags.`mlflow.parentRunId` = '{session.info.run_id}'")
    numbers = [int(run.data.tags["nvtrader.run_id"].rpartition("/")[2]) for run in nested]
    assert len(set(numbers)) == len(numbers)
    return session, dict(zip(numbers, nested, strict=True))


def test_session_has_a_nested_run_per_trial_with_knobs_and_figures(home, track):
    lines, warnings = track(iter(LINES))
    assert (lines, warnings) == (LINES, [])
    session, trials = runs_of(home)
    assert session.info.status == "FINISHED"
    assert (session.data.params["budget"], session.data.params["proposer.kind"]) == ("30", "optuna")
    assert (session.data.tags["kind"], session.data.tags["outcome"]) == ("search", "nothing found")
    assert session.data.tags["mlflow.note.content"] == "less turnover"
    rows = {line.trial: line for line in LINES if line.event == "trial" and line.status != "known"}
    reruns = {line.trial: line for line in LINES if line.event == "rerun"}
    assert trials.keys() == rows.keys()
    for number, run in trials.items():
        row, last = rows[number], reruns.get(number, rows[number])
        ending = "FAILED" if row.status in ("failed", "infeasible") else "FINISHED"
        assert (run.info.status, run.data.tags["status"]) == (ending, row.status)
        assert run.data.tags["standing"] == last.standing
        assert run.data.metrics.get("sharpe") == row.sharpe
        assert run.data.metrics.get("lead_of_all_seeds") == (
            last.lead.difference if number in reruns and last.lead else None
        )
        assert run.data.params["lookback"] == str(row.proposed["lookback"])


def test_resumed_session_logs_the_trials_that_mlflow_lacks_once(home, track):
    def killed():
        yield from LINES[:6]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        track(killed())
    session, trials = runs_of(home)
    assert (session.info.status, len(trials)) == ("KILLED", 5)
    client = MlflowTracking.at(home).open()[0]
    client.update_run(trials[3].info.run_id, "RUNNING")  # as if killed before its end
    lines, _ = track(iter(LINES[12:]), before=LINES[:12])
    assert lines == LINES[12:]
    resumed, trials = runs_of(home)
    assert (resumed.info.run_id, resumed.info.status) == (session.info.run_id, "FINISHED")
    assert (sorted(trials), trials[3].info.status) == (list(range(1, 31)), "FINISHED")


def test_lines_of_a_session_do_not_wait_for_mlflow(home):
    steps = track_session(home, SESSION, [], iter(LINES), print)
    with file_lock(home.mlflow_database.with_name("mlflow.db.lock")):
        assert [next(steps) for _ in LINES] == LINES
    assert list(steps) == []
    assert len(runs_of(home)[1]) == 30


def test_store_that_fails_is_one_warning_of_a_search(home, track):
    shutil.rmtree(home.mlflow)
    home.mlflow.write_bytes(b"")
    lines, warnings = track(iter(LINES))
    assert (lines, len(warnings)) == (LINES, 1)
