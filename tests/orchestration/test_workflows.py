"""Workflows: jobs that run one after the other, and files that are refused."""

import dagster as dg
import pytest
import yaml

from nvtrader_pipelines import Pipeline
from nvtrader_pipelines.orchestration import PipelineError
from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.instance import open_instance
from nvtrader_pipelines.orchestration.workflow_files import MAX_STEPS, read_workflow, read_workflows
from nvtrader_pipelines.orchestration.workflow_runs import run_workflow
from nvtrader_pipelines.orchestration.workflows import JOB_TAGS, WORKFLOW_RUN, require_steps
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from tests.homes import write_experiment

REPLAY = {"job": "replay", "config": {"ops": {"replay_policies": {"config": {"run_id": "none"}}}}}


@pytest.fixture(autouse=True)
def _own_dagster_home(monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", "")  # set by opening, and set back after


def write(home, name, /, *steps, **changes):
    """Write a workflow whose steps are jobs by name, or mappings."""
    home.workflows.mkdir(parents=True, exist_ok=True)
    content = {"name": name, "steps": [step if isinstance(step, dict) else {"job": step} for step in steps]}
    (home.workflows / f"{name}.yaml").write_text(yaml.safe_dump(content | changes))


def runs_of(store, workflow):
    """Status of each run of a workflow, with the jobs and states of its steps, oldest first."""
    with open_instance(store) as instance:
        runs = instance.get_runs(dg.RunsFilter(job_name=workflow))
        steps = [instance.get_runs(dg.RunsFilter(tags={WORKFLOW_RUN: run.run_id}), ascending=True) for run in runs]
    return [
        (run.status.value, [(step.job_name, step.status.value) for step in own])
        for run, own in zip(runs, steps, strict=True)
    ]


def test_workflow_that_names_another_has_its_steps_in_place(home):
    write(home, "tidy", "upkeep", {"job": "market", "partition": "2020"})
    write(home, "night", "promotion", "tidy", "judgement")
    steps = read_workflow(home, "night", JOB_TAGS).steps
    assert [(step.job, step.partition) for step in steps] == [
        ("promotion", None),
        ("upkeep", None),
        ("market", "2020"),
        ("judgement", None),
    ]


@pytest.mark.parametrize(
    ("steps", "changes", "part"),
    [
        (["upkep"], {}, "did you mean 'upkeep'"),
        ([], {}, "steps"),
        (["upkeep"], {"name": "other"}, "'other'"),
        (["upkeep"], {"shell": "rm -rf /"}, "shell"),
        ([{"job": "market", "partition": "../2020"}], {}, "partition"),
        ([{"job": "fine", "partition": "2020"}], {}, "neither partition nor config"),
        (["a"], {}, "a → a"),
        (["b"], {}, "a → b → c → a"),
        (["wide"], {}, f"{MAX_STEPS} steps at most"),
    ],
)
def test_invalid_workflow_is_refused_and_the_others_stay(steps, changes, part, home):
    write(home, "a", *steps, **changes)
    write(home, "b", "c")
    write(home, "c", "a")
    write(home, "fine", "upkeep")
    write(home, "wide", *["wider"] * MAX_STEPS)
    write(home, "wider", *["fine"] * MAX_STEPS)
    with pytest.raises(StorageError) as refusal:
        read_workflow(home, "a", JOB_TAGS)
    assert part in str(refusal.value)
    assert [*read_workflows(home, JOB_TAGS).specs] == ["fine", "wider"]


def test_workflow_with_the_name_of_a_job_is_refused(home):
    write(home, "upkeep", "market")
    with pytest.raises(StorageError, match="rename it"):
        read_workflow(home, "upkeep", JOB_TAGS)


def test_definitions_have_a_job_per_valid_workflow_with_the_limits_of_its_steps(home, caplog):
    write(home, "two-steps", "upkeep", {"job": "experiment", "partition": "tiny"})
    write(home, "one", "rebalance")
    write(home, "broken", "broken")
    jobs = {job.name: job for job in build_defs(home=home).resolve_all_job_defs()}
    tags = [jobs[f"workflow_{name}"].run_tags for name in ("two_steps", "one")]
    assert [[tag for tag in one if tag in ("nvtrader/training", "nvtrader/trading")] for one in tags] == [
        ["nvtrader/training"],
        ["nvtrader/trading"],
    ]
    assert "workflow_broken" not in jobs
    assert "broken → broken" in caplog.text


@pytest.mark.parametrize(
    ("step", "part"),
    [
        ({"job": "market", "partition": "1912"}, "'1912' is none of its"),
        ({"job": "experiment"}, "must have a partition"),
        ({"job": "experiment", "partition": "tinny"}, "did you mean 'tiny'"),
        ({"job": "upkeep", "partition": "2020"}, "has no partitions"),
        ({"job": "replay"}, "replay_policies"),
        ({"job": "upkeep", "config": {"ops": {"sweep": {}}}}, "sweep"),
        ({"job": "autoresearch", "config": {"ops": {"autoresearch_session": {"config": {"budgets": 3}}}}}, "budgets"),
    ],
)
def test_step_with_unknown_partition_or_field_is_refused_before_the_first(step, part, store, instance, defs):
    write_experiment(store.home)
    write(store.home, "chain", "upkeep", step)
    with pytest.raises(ValueError, match=r"^step 2 of the workflow chain cannot run: ") as refusal:
        require_steps(store, instance, read_workflow(store.home, "chain", JOB_TAGS), defs)
    assert part in str(refusal.value)


@pytest.fixture(scope="module")
def defs(tmp_path_factory) -> dg.Definitions:
    return build_defs(home=Home(tmp_path_factory.mktemp("jobs")))


@pytest.fixture(scope="module")
def runner(tmp_path_factory) -> Store:
    """Store of a home whose Dagster instance the tests share, with an empty market."""
    return Store(Home(tmp_path_factory.mktemp("runner") / "home"))


@pytest.mark.slow
def test_steps_of_a_workflow_run_in_order(runner, capsys):
    write(runner.home, "chain", "gate", "upkeep")
    write(runner.home, "gate", "promotion")
    runner.home.experiments.mkdir(parents=True)
    rows = Pipeline(runner.home.root, quiet=True).workflows.run("chain")
    assert rows["job"].to_list() == ["promotion", "upkeep"]
    assert runs_of(runner, "workflow_chain") == [("SUCCESS", [("promotion", "SUCCESS"), ("upkeep", "SUCCESS")])]
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_failing_first_step_stops_a_workflow(runner):
    write(runner.home, "failing", REPLAY, "upkeep")
    with pytest.raises(PipelineError, match=r"^workflow_failing: .*_step_1_replay failed: replay: ") as failure:
        run_workflow(runner, "failing", quiet=True)
    assert "nvtrader_pipelines." not in str(failure.value)
    assert runs_of(runner, "workflow_failing") == [("FAILURE", [("replay", "FAILURE")])]


@pytest.mark.slow
def test_workflow_with_a_step_that_cannot_run_starts_none(runner):
    write(runner.home, "late", "upkeep", {"job": "market", "partition": "1912"})
    with pytest.raises(ValueError, match="step 2"):
        run_workflow(runner, "late", quiet=True)
    with pytest.raises(NotFoundError, match="'late'"):
        run_workflow(runner, "laet", quiet=True)
    assert runs_of(runner, "workflow_late") == []
