"""`nvtrader materialize` as a person runs it: interrupted, killed, run again."""

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager

import dagster as dg
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.orchestration import PipelineError, materialize
from nvtrader_pipelines.orchestration.console import console_logger
from nvtrader_pipelines.orchestration.instance import dagster_home
from nvtrader_pipelines.orchestration.jobs import is_contest_judged, is_promotion_current
from nvtrader_pipelines.orchestration.materialize import omit_unlisted, run_pipeline, select_experiments
from nvtrader_pipelines.policies.archive import read_archive
from nvtrader_pipelines.runs.input_digests import contest_digest, promotion_digest
from nvtrader_pipelines.runs.interruptions import INTERRUPTED, RunHalted
from nvtrader_pipelines.runs.market_state import market_is_current
from nvtrader_pipelines.runs.planning import JudgedRuns
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.policy_library import LATEST, MANIFEST, policy_file_name
from nvtrader_pipelines.storage.specs import read_experiments
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import PROMOTION_DECISIONS, RUNS
from nvtrader_pipelines.storage.views.queries import query_views
from tests.homes import (
    KEY,
    N_POLICIES,
    NVTRADER,
    SECRET,
    SPEC,
    SWEEP,
    SWEPT,
    environment,
    nvtrader,
    session_processes,
    small_home,
    table_contents,
    write_experiment,
)
from tests.storage.ledger.run_rows import RUN_ID, run_row

PATIENCE = 300.0  # seconds


@contextmanager
def running(home, *arguments):
    """The command in a session of its own, as in a terminal."""
    with subprocess.Popen(
        [NVTRADER, *arguments],
        env=environment(home),
        cwd=home.root,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            for left in session_processes(process.pid):
                left.kill()


def wait_for(condition, process=None) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it took too long"
        assert process is None or process.poll() is None, "it ended before its time"
        time.sleep(0.005)


def policies(home) -> dict[str, tuple[bytes, int]]:
    """The visible policy files: content and time."""
    found = home.policies.glob("*/*/fold-*.zip")
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def recorded_policies(home) -> set[str]:
    """Names of the policy files whose training the ledger records; a kill may leave one more file."""
    ledger = Store(home).ledger
    return {policy_file_name(key) for run_id in ledger.runs()["run_id"] for key in ledger.trained_keys(run_id)}


def assert_no_half_run(home) -> None:
    for content, _ in policies(home).values():
        read_archive(content)
    assert len(policies(home)) < N_POLICIES
    assert not list(home.policies.rglob(MANIFEST))
    assert not list(home.policies.rglob(LATEST))
    assert not JudgedRuns(Store(home)).current_run(KEY)


@pytest.mark.nightly
@pytest.mark.usefixtures("interruptible")
def test_interrupted_and_killed_training_resumes(tmp_path, built_home, fast_nvtrader):
    home = small_home(tmp_path / "home")

    with running(home, "materialize") as process:
        wait_for(lambda: recorded_policies(home), process)
        os.killpg(process.pid, signal.SIGINT)  # what Ctrl-C does
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, output
    assert "interrupted; finished steps are stored" in output
    assert "Traceback" not in output
    assert_no_half_run(home)
    assert query_views(Store(home), "SELECT count(*) FROM gold.returns").item() > 0  # published after the market
    (run,) = Store(home).ledger.runs().to_dicts()
    assert (run["status"], run["message"]) == ("interrupted", INTERRUPTED)
    kept, before = policies(home), recorded_policies(home)

    with running(home, "materialize") as process:
        wait_for(lambda: recorded_policies(home) > before, process)
        process.kill()
        process.communicate(timeout=PATIENCE)
        wait_for(lambda: not session_processes(process.pid))  # its workers end with it
    assert_no_half_run(home)
    kept |= policies(home)
    recorded = recorded_policies(home)
    assert Store(home).ledger.run(run["run_id"]).status == "running"  # nobody could say so any more
    (listed,) = json.loads(nvtrader(home, "runs", "--json", command=fast_nvtrader).stdout)
    assert listed["status"] == "interrupted"
    assert "ended before it did" in listed["message"]

    finished = nvtrader(home, "materialize", command=fast_nvtrader)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "market: up to date" in finished.stdout
    closed = Store(home).ledger.run(run["run_id"])
    assert (closed.status, closed.message, closed.attempts) == ("done", None, 3)
    now, theirs = policies(home), policies(built_home)
    assert len(recorded) >= 2
    assert {name: now[name] for name in recorded} == {name: kept[name] for name in recorded}  # not trained again
    assert {name: content for name, (content, _) in now.items()} == {name: each for name, (each, _) in theirs.items()}
    mine, other = table_contents(home), table_contents(built_home)
    for name, frame in other.items():
        assert_frame_equal(mine[name], frame, check_exact=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hook", "interrupt"),
    [
        ("inside a step", KeyboardInterrupt),
        ("between two steps", dg.DagsterExecutionInterruptedError),
        pytest.param("inside a step", dg.DagsterExecutionInterruptedError, marks=pytest.mark.nightly),
        pytest.param("between two steps", KeyboardInterrupt, marks=pytest.mark.nightly),
    ],
)
def test_interrupt_between_steps_closes_the_run_as_interrupted(tmp_path, monkeypatch, interrupt, hook):
    home = small_home(tmp_path / "home")
    ledger = Store(home).ledger

    @dg.asset
    def training(context: dg.AssetExecutionContext) -> None:
        ledger.begin(run_row(ledger, dagster_run_id=context.run.run_id))
        if hook == "inside a step":
            raise interrupt

    @dg.asset_check(asset=training, blocking=True)
    def complete() -> dg.AssetCheckResult:
        raise interrupt

    defs = dg.Definitions(
        [training], asset_checks=[complete], jobs=[dg.define_asset_job("market")], loggers={"console": console_logger}
    )
    monkeypatch.setattr(materialize, "build_defs", lambda *_: defs)
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(Store(home), [], quiet=True)
    run = ledger.run(RUN_ID)
    assert (run.status, run.message) == ("interrupted", INTERRUPTED)


@pytest.mark.slow
def test_halted_step_ends_materialize_as_halted(tmp_path, monkeypatch):
    @dg.asset
    def training() -> None:
        raise RunHalted("the run was halted: ann stopped trading")

    defs = dg.Definitions([training], jobs=[dg.define_asset_job("market")], loggers={"console": console_logger})
    monkeypatch.setattr(materialize, "build_defs", lambda *_: defs)
    with pytest.raises(RunHalted):
        run_pipeline(Store(small_home(tmp_path / "home")), [], quiet=True)


@pytest.mark.slow
def test_failed_step_is_described_without_the_class_of_its_error(tmp_path, monkeypatch):
    @dg.asset
    def prices() -> None:
        raise StorageError("the audit is damaged; restore it")

    defs = dg.Definitions([prices], jobs=[dg.define_asset_job("market")], loggers={"console": console_logger})
    monkeypatch.setattr(materialize, "build_defs", lambda *_: defs)
    with pytest.raises(PipelineError, match=r"^market: prices failed: the audit is damaged; restore it"):
        run_pipeline(Store(small_home(tmp_path / "home")), [], quiet=True)


@pytest.mark.parametrize("name", ["promotion.yaml", "contests.yaml"])
def test_invalid_file_of_the_last_steps_is_refused_before_any_work(tmp_path, name):
    home = small_home(tmp_path / "home")
    (home.root / "data" / name).write_text("margin: 3\n")
    with pytest.raises(StorageError):
        run_pipeline(Store(home), [], quiet=True)
    assert not market_is_current(Store(home))


@pytest.mark.slow
def test_second_run_computes_nothing_and_prints_only_json(built_home, fast_nvtrader):
    before = Store(built_home).tables.describe_all()
    again = nvtrader(built_home, "materialize", "tiny", "--json", command=fast_nvtrader)
    assert (again.returncode, again.stderr) == (0, "")
    rows = json.loads(again.stdout)
    assert {row["period"] for row in rows} == {"before_2017", "from_2017", "all"}
    assert {row["kind"] for row in rows} == {"ensemble", "baseline"}
    assert_frame_equal(Store(built_home).tables.describe_all(), before)


def test_market_contest_and_promotion_are_current_after_a_run(built_home):
    store = Store(built_home)
    assert market_is_current(store)
    assert JudgedRuns(store).current_run(KEY)
    with dg.DagsterInstance.from_config(str(dagster_home(built_home))) as instance:
        assert is_contest_judged(instance, contest_digest(store))
        assert is_promotion_current(instance, promotion_digest(store.home, contest_digest(store)))
        assert not is_contest_judged(instance, "another contest")
        assert not is_promotion_current(instance, "another contest")


def test_run_prints_the_decision_of_the_promotion_gate(built_home):
    (answer,) = Store(built_home).tables.read(PROMOTION_DECISIONS)["sentence"]
    assert f"promotion: {answer}\n" in (built_home.root.parent / "built-home.txt").read_text()


@pytest.mark.parametrize(
    "change",
    [pl.DataFrame.clear, lambda runs: runs.with_columns(pl.col("finished_at") + pl.duration(seconds=1))],
    ids=["another run", "tested anew"],
)
def test_contest_state_changes_with_a_new_or_retested_run(built_home, monkeypatch, change):
    store, read = Store(built_home), Warehouse.read
    before = contest_digest(store)
    assert contest_digest(store) == before

    def changed(own, table, **options):
        rows = read(own, table, **options)
        return change(rows) if table is RUNS else rows

    monkeypatch.setattr(Warehouse, "read", changed)
    assert contest_digest(store) != before


def test_contest_state_changes_with_an_entrant_file(tmp_path):
    store = Store(Home(tmp_path))
    states = [contest_digest(store)]
    for name, text in (("mine.yaml", "kind: weights"), ("weights/mine.csv", "1"), ("weights/mine.csv", "2")):
        path = store.home.entrants / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        states.append(contest_digest(store))
    (store.home.entrants / "weights" / "mine.csv").write_text("1")
    assert len(set(states)) == 4
    assert contest_digest(store) == states[2]


def test_no_file_contains_a_secret_of_the_environment(built_home):
    telling = [
        path
        for path in [*built_home.root.rglob("*"), *built_home.root.parent.glob("built-home.txt")]
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert telling == []


def selected(home, names):
    """Names of the selected experiments, and the files with problems."""
    store = Store(home)
    specs, problems = select_experiments(store, read_experiments(home), names)
    return [spec.name for spec in specs], list(problems)


def test_select_experiments_keeps_the_order_of_the_names(tmp_path):
    home = small_home(tmp_path / "home")
    write_experiment(home, "other.yaml", name="other")
    assert selected(home, []) == (["other", "tiny"], [])
    assert selected(home, ["tiny", "other"]) == (["tiny", "other"], [])


def test_experiments_of_unlisted_sources_are_left_out_unless_all_are(tmp_path):
    store, lines = Store(small_home(tmp_path / "home")), []
    away = ExperimentSpec(name="away")
    assert omit_unlisted(store, [away, SPEC], lines.append) == [SPEC]
    assert lines == ["away is left out: data/market.yaml lists no source sample"]
    assert omit_unlisted(store, [away], lines.append) == [away]


def test_select_experiments_of_a_variant_selects_its_ablation(tmp_path):
    home = small_home(tmp_path / "home")
    write_experiment(home, "sweep.yaml", **SWEEP)
    assert selected(home, [SWEPT[1].partition("@")[0]]) == (["sweep"], [])
    assert selected(home, ["sweep"]) == (["sweep"], [])


def test_select_experiments_skips_a_broken_file_with_its_problem(tmp_path):
    home = small_home(tmp_path / "home")
    write_experiment(home, "broken.yaml", name="bad", seeds=[1])
    assert selected(home, []) == (["tiny"], ["broken.yaml"])
    assert selected(home, ["bad", "tiny"]) == (["tiny"], ["broken.yaml"])
    assert selected(home, ["tiny"]) == (["tiny"], [])
    with pytest.raises(ValueError):
        selected(home, ["bad"])


def test_select_experiments_leaves_out_archived_ones(tmp_path):
    home = small_home(tmp_path / "home")
    write_experiment(home, "other.yaml", name="other")
    Store(home).ledger.archive(["other"])
    assert selected(home, []) == (["tiny"], [])
    Store(home).ledger.archive(["tiny"])
    with pytest.raises(ValueError):
        selected(home, [])
    with pytest.raises(ValueError):
        selected(home, ["other"])


def test_select_experiments_unknown_name_lists_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match="tiny"):
        selected(small_home(tmp_path / "home"), ["huge", "tiny"])


def test_select_experiments_without_any_names_the_folder(tmp_path):
    home = small_home(tmp_path / "home")
    (home.experiments / "tiny.yaml").unlink()
    with pytest.raises(ValueError, match="data/experiments"):
        selected(home, [])
