import os
import signal

import dagster as dg
import polars as pl
import pytest

from nvtrader_pipelines.orchestration.assets import autoresearch
from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.research.journal import ModelAsked
from nvtrader_pipelines.research.recorded_session import is_closed, read_session
from nvtrader_pipelines.research.session_report import write_report
from nvtrader_pipelines.research.trial_pool import TrialPool
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RATIO_CURVE, RESEARCH_TRIALS
from tests import llm_server
from tests.homes import copy_home, run_job
from tests.orchestration.test_validation import add_run
from tests.research.search_homes import market, search_home, trials_of
from tests.research.sessions import JournalBuilder, a_session, write_session

pytestmark = pytest.mark.slow

CONFIG = {"source": "landing", "eval_mode": "cufolio_only", "budget": 3, "workers": 1}


@pytest.fixture(scope="module")
def landed(tmp_path_factory):
    """A home with a market to search; read it, never write it."""
    return search_home(tmp_path_factory.mktemp("searched") / "home", market())


@pytest.fixture
def home(landed, tmp_path, monkeypatch):
    """Copy of that home, whose reports have no picture."""
    monkeypatch.setattr("nvtrader_pipelines.storage.files.write_picture", lambda *_: None)
    return copy_home(landed, tmp_path / "home")


def search(home, instance, *, raises=True, parent=None, **config):
    """Run the job, as a retry of a parent if there is one."""
    job = build_defs(home=home).resolve_job_def("autoresearch")
    tags = {} if parent is None else {"dagster/parent_run_id": parent.run_id, "dagster/root_run_id": parent.run_id}
    return job.execute_in_process(
        run_config={"ops": {"autoresearch_session": {"config": {**CONFIG, **config}}}},
        instance=instance,
        raise_on_error=raises,
        tags=tags,
    )


def metadata_of(done):
    """Metadata of the session's materialization."""
    (event,) = [each for each in done.get_asset_materialization_events() if each.asset_key == autoresearch.SESSION_KEY]
    return event.materialization.metadata


def terminate(instance):
    """Do what Terminate does to the newest run, in this process."""
    instance.report_run_canceling(instance.get_runs(limit=1)[0])
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def searched(landed, instance, tmp_path_factory):
    """Home in which a run has searched after an experiment's run, with a model, and the run."""
    home = copy_home(landed, tmp_path_factory.mktemp("one") / "home")
    add_run(home, 0)
    answer = {"changes": {"max_position_pct": 0.11}, "reason": "smaller bets", "expects": 0.5}
    with llm_server.serve(llm_server.document(answer)) as server:
        home.llm_file.write_text(f"base_url: {server.base_url}\nmax_seconds_lost: 60\n")
        return home, search(home, instance, proposer="{kind: llm, share: 1.0, n_warmup_trials: 2}")


def test_run_is_a_session_with_its_verdict_pictures_and_rows(searched, instance):
    home, done = searched
    (folder,) = Store(home).searches.folders()
    figures = metadata_of(done)
    assert figures["session"].value == folder.session_id
    assert (figures["n_trials"].value, figures["outcome"].value) == (3, "nothing found")
    assert {"sharpe", "importances", "report"} <= figures.keys()
    assert (home.pictures / "autoresearch_session" / "sharpe.png").exists()
    trials, curve = (Store(home).tables.read(table) for table in (RESEARCH_TRIALS, RATIO_CURVE))
    assert trials["session_id"].to_list() == [folder.session_id] * 3
    curve = curve.filter(session_id=folder.session_id)
    assert curve["kind"].to_list() == ["trial"] * 3
    said = [record.user_message for record in instance.all_logs(done.run_id)]
    assert sum("left)" in line for line in said if line.startswith("trial")) == 2  # after two of three trials


def test_model_proposes_in_a_run(searched):
    home, done = searched
    (folder,) = Store(home).searches.folders()
    asked = [line for line in read_session(folder).lines if isinstance(line, ModelAsked)]
    assert [(line.proposal, line.outcome) for line in asked] == [(3, "proposed")]
    assert done.success


def test_run_after_a_search_is_deflated_for_its_trials(searched, instance, tmp_path):
    home = copy_home(searched[0], tmp_path / "home")
    add_run(home, 1)
    key = dg.AssetKey(["evaluation", "sharpe_ratio_curve"])
    assert run_job(home, "judgement", instance, asset_selection=[key]).success
    curve = Store(home).tables.read(RATIO_CURVE)
    every = curve.filter(pl.col("period").is_in(["all", "validation"]))
    assert every["kind"].to_list() == ["run", "trial", "trial", "trial", "run"]
    assert every["n_trials"].to_list() == [1, 2, 3, 4, 5]
    assert every["deflated_sharpe"].null_count() == 0
    assert (home.pictures / "sharpe_ratio_curve" / "ratio_curve.png").exists()


def test_retry_of_a_failed_run_resumes_its_session_unless_settings_differ(home, instance, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(autoresearch, "session_metadata", lambda *_: 1 / 0)
        failed = search(home, instance, raises=False, budget=1)
    with pytest.raises(ValueError):
        search(home, instance, parent=failed, budget=7, seed=9)
    done = search(home, instance, parent=failed, budget=1)
    (folder,) = Store(home).searches.folders()
    assert metadata_of(done)["session"].value == folder.session_id
    assert read_session(folder).session.spec.budget == 1
    assert len(trials_of(folder)) == 1
    again = search(home, instance, parent=done, budget=1)  # a finished session is not resumed
    assert metadata_of(again)["session"].value != folder.session_id


def test_terminate_before_the_first_result_is_a_success_without_one(home, instance, monkeypatch):
    submit = TrialPool.submit

    def submit_and_terminate(pool, job):
        submit(pool, job)
        if job.number == 1:
            terminate(instance)

    with monkeypatch.context() as terminating:
        terminating.setattr(TrialPool, "submit", submit_and_terminate)
        stopped = search(home, instance)
    (folder,) = Store(home).searches.folders()
    assert read_session(folder).lines == ()
    assert metadata_of(stopped)["n_trials"].value == 0


@pytest.mark.parametrize(
    "status", [dg.DagsterRunStatus.CANCELING, pytest.param(dg.DagsterRunStatus.STARTED, marks=pytest.mark.nightly)]
)
def test_terminate_ends_after_the_current_trial_and_other_interrupts_at_once(home, instance, monkeypatch, status):
    append = SessionFolder.append

    def append_and_interrupt(folder, line):
        append(folder, line)
        if '"event":"trial"' in line and status is dg.DagsterRunStatus.CANCELING:
            terminate(instance)
        elif '"event":"trial"' in line:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as interrupting:
        interrupting.setattr(SessionFolder, "append", append_and_interrupt)
        is_stopped = status is dg.DagsterRunStatus.CANCELING
        if is_stopped:
            stopped = search(home, instance)
        else:
            with pytest.raises(dg.DagsterExecutionInterruptedError):
                search(home, instance)
            stopped = instance.get_runs(limit=1)[0]
    (folder,) = Store(home).searches.folders()
    assert not is_closed(read_session(folder).lines)
    assert len(trials_of(folder)) == 1
    if is_stopped:
        assert "outcome" not in metadata_of(stopped)
    assert metadata_of(search(home, instance, parent=stopped))["outcome"].value == "nothing found"
    assert len(trials_of(folder)) == 3


def test_value_out_of_bounds_fails_in_the_run_and_leaves_no_session(home, instance):
    with pytest.raises(ValueError):
        search(home, instance, budget=0)
    assert Store(home).searches.folders() == []


def test_metadata_of_a_winner_can_be_stored_by_dagster(home):
    builder = JournalBuilder().trial(0.3, lookback=20)
    builder.rerun("t1", (1.0, 1.0), 0.3).look(0.4, 0.4)
    session = a_session()
    folder = write_session(home, session, builder.lines)
    write_report(folder, session, builder.lines)
    figures = autoresearch.session_metadata(Store(home), read_session(folder))
    result = dg.MaterializeResult(asset_key=autoresearch.SESSION_KEY, metadata=figures)
    assert dg.serialize_value(result.metadata)
    assert figures["outcome"] == "winner"
