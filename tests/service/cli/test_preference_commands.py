import json
from pathlib import Path

import polars as pl
import pytest

from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.feedback.pairs import write_preference_pairs
from nvtrader_pipelines.feedback.tuning import tuning_experiment
from nvtrader_pipelines.preferences import pairs
from nvtrader_pipelines.preferences.pair_table import PREFERENCE_PAIR
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import read_plan
from nvtrader_pipelines.runs.run_tables import replace_run
from nvtrader_pipelines.runs.train_walk_judge import judge_run, train_run, walk_run
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import PREFERENCE_PAIRS
from tests.homes import copy_home
from tests.preferences.test_preference_export import PAIRS
from tests.runs.untrained import KEY
from tests.service.cli.error_lines import is_one_line_error

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(evaluated_home, tmp_path_factory):
    """A home with one evaluated run."""
    store = Store(copy_home(evaluated_home, tmp_path_factory.mktemp("preferences") / "home"))
    return store, store.policies.read_latest(KEY)


@pytest.fixture
def export(trained, command):
    store, run = trained
    replace_run(store, PREFERENCE_PAIRS, PAIRS, run)
    invoke = command(store.home)
    return lambda *arguments: invoke("preferences", "export", *arguments)


def test_export_writes_pairs_of_the_latest_run_below_exports(trained, export):
    store, run = trained
    document = json.loads(export("small", "--json").stdout)
    path = store.home.exports / "small-pairs.jsonl"
    assert document == {
        "experiment": "small",
        "run_id": run.run_id,
        "n_rows": 2,
        "n_left_out": 1,
        "file": str(path),
    }
    assert [json.loads(line)["holdout"] for line in path.read_text().splitlines()] == [False, False]
    assert str(path) in export(run.run_id[:8]).stdout.replace("\n", "")


def test_export_with_holdout_writes_all_pairs_to_the_named_file(export, tmp_path):
    path = tmp_path / "mine.parquet"
    document = json.loads(export("small", "-o", str(path), "--holdout", "--json").stdout)
    assert (document["n_rows"], document["n_left_out"], Path(document["file"])) == (3, 0, path)
    assert pl.read_parquet(path)["holdout"].sum() == 1


def test_export_to_another_suffix_or_a_missing_folder_exits_with_3(export, tmp_path):
    for path in (tmp_path / "pairs.csv", tmp_path / "none" / "pairs.jsonl"):
        refused = export("small", "--output", str(path))
        assert refused.exit_code == BAD_INPUT
        assert is_one_line_error(refused.stderr)
        assert not path.exists()


def test_export_of_an_experiment_without_pairs_or_runs_exits_with_3(trained, export):
    store, run = trained
    replace_run(store, PREFERENCE_PAIRS, pl.DataFrame(schema=PREFERENCE_PAIR), run)
    for name, remedy in (("small", "nvtrader preferences pairs small"), ("smal", "small")):
        refused = export(name)
        assert refused.exit_code == BAD_INPUT
        assert remedy in refused.stderr.replace("\n", " ")


def test_pairs_tells_what_they_can_show(trained, command):
    store, run = trained
    replace_run(store, PREFERENCE_PAIRS, PAIRS.clear(), run)
    document = json.loads(command(store.home)("preferences", "pairs", "small", "--json").stdout)
    assert document["n_pairs"] == document["n_trained"] + document["n_held_out"] > 0
    assert (document["n_of_people"], document["run_id"]) == (0, run.run_id)
    assert document["n_decisions"] == 0
    assert document["half_width"] is None
    shown = command(store.home)("preferences", "pairs", "small").stdout
    assert f"{document['n_pairs']:,}" in shown


def test_check_of_what_was_never_tuned_names_the_command(evaluated_home, tmp_path, command):
    refused = command(copy_home(evaluated_home, tmp_path / "home"))("preferences", "check", "small")
    assert refused.exit_code == BAD_INPUT
    assert "nvtrader preferences train small" in " ".join(refused.stderr.split())


@pytest.fixture
def tuned(trained, monkeypatch):
    """The run with its policies tuned to pairs of alternating quarters."""
    store, run = trained
    monkeypatch.setattr(pairs, "PARTS", ("train", "report"))
    replace_run(store, PREFERENCE_PAIRS, PAIRS.clear(), run)
    write_preference_pairs(store, run)
    whole = tuning_experiment(store, run)
    spec = whole.model_copy(update={"agent": whole.agent.model_copy(update={"total_timesteps": 200})})
    store.ledger.register(spec)
    plan = read_plan(store, spec.partition_key)
    for phase in (train_run, walk_run, judge_run):
        drain(phase(store, plan, Launch("task")))
    return store, plan.run_id


def test_check_shows_the_verdict_and_draws_it(tuned, command):
    store, run_id = tuned
    document = json.loads(command(store.home)("preferences", "check", "small", "--json").stdout)
    assert document["run_id"] == run_id
    assert document["auc_low"] <= document["auc"] <= document["auc_high"]
    assert document["passed"] == (document["auc_low"] > 0.5)
    assert Path(document["picture"]).read_bytes().startswith(b"\x89PNG")
    assert sum(row["n_pairs"] for row in document["calibration"]) == document["n_pairs"]
    shown = " ".join(command(store.home)("preferences", "check", "small-dpo").stdout.split())
    assert document["sentence"] in shown
