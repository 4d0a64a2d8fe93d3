import json

import polars as pl
import pytest
import torch

from nvtrader_pipelines.envs.observations.builder import ObservationScaler
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.plan import RunPlan, policy_card
from nvtrader_pipelines.experiments.run_store import TrainedPolicy
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.policies.agents import Fit
from nvtrader_pipelines.policies.archive import write_archive
from nvtrader_pipelines.policies.rollout_tables import TRAJECTORY
from nvtrader_pipelines.policies.training import TrainingTask
from nvtrader_pipelines.portfolio.pipeline import Thresholds
from nvtrader_pipelines.storage import policy_library
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger.processes import processor_name
from nvtrader_pipelines.storage.policy_library import PolicyLibrary, training_windows
from tests.markets import synthetic_panel

SPEC = ExperimentSpec(name="a")


@pytest.fixture(scope="module")
def plan():
    panel = synthetic_panel(400)
    return RunPlan(SPEC, panel, panel_digest(panel), (Fold(0, 0, 199, 206, 299), Fold(1, 0, 299, 306, 399)))


@pytest.fixture
def library(home):
    return PolicyLibrary(home)


def trained_policy(plan, fold, seed, weight=1.0):
    task = TrainingTask(
        fold, seed, (plan.folds[fold].train_first, plan.folds[fold].train_last), SPEC.environment, SPEC.agent
    )
    fit = Fit({"weight": torch.full((2,), weight)}, ObservationScaler(), [])
    return TrainedPolicy(
        fold, seed, write_archive(policy_card(plan, task, fit), fit.tensors), pl.DataFrame(schema=TRAJECTORY)
    )


def seal_run(library, plan):
    for fold, seed in plan.keys:
        library.save(SPEC.partition_key, plan.run_id, trained_policy(plan, fold, seed))
    return library.seal(plan)


def test_sealed_run_is_read_back_by_fold_and_seed(library, plan):
    run = seal_run(library, plan)
    assert library.read_latest(SPEC.partition_key) == run
    contents = library.read_run(run)
    assert sorted(contents) == sorted(plan.keys)
    assert contents[1, 2] == trained_policy(plan, 1, 2).archive


def test_trained_keys_are_those_of_saved_policies(library, plan):
    assert library.trained_keys(SPEC.partition_key, plan.run_id) == set()
    library.save(SPEC.partition_key, plan.run_id, trained_policy(plan, 0, 1))
    assert library.trained_keys(SPEC.partition_key, plan.run_id) == {(0, 1)}


def test_trained_keys_exclude_half_written_policies(library, plan):
    folder = library.folder(SPEC.partition_key, plan.run_id)
    path = library.save(SPEC.partition_key, plan.run_id, trained_policy(plan, 0, 0))
    (folder / f".{path.name}.x1.tmp").write_bytes(path.read_bytes()[:100])  # left by a kill during the write
    (folder / "fold-0-seed-1.zip").write_bytes(path.read_bytes()[:100])  # left by a disk error
    assert library.trained_keys(SPEC.partition_key, plan.run_id) == {(0, 0)}


def test_run_with_a_missing_policy_cannot_be_sealed(library, plan):
    for fold, seed in plan.keys[:-1]:
        library.save(SPEC.partition_key, plan.run_id, trained_policy(plan, fold, seed))
    with pytest.raises(StorageError):
        library.seal(plan)
    with pytest.raises(StorageError):
        library.read_latest(SPEC.partition_key)


def test_policy_changed_after_sealing_is_refused_and_trained_again(library, plan):
    run = seal_run(library, plan)
    library.save(SPEC.partition_key, plan.run_id, trained_policy(plan, 0, 0, weight=2.0))
    assert library.find_tampered_files(run)["file"].to_list() == ["fold-0-seed-0.zip"]
    with pytest.raises(StorageError):
        library.read_run(run)
    assert (0, 0) not in library.trained_keys(SPEC.partition_key, plan.run_id)
    assert len(library.trained_keys(SPEC.partition_key, plan.run_id)) == len(plan.keys) - 1


def test_policy_removed_after_sealing_is_refused(library, plan):
    run = seal_run(library, plan)
    path = library.folder(SPEC.partition_key, plan.run_id) / "fold-0-seed-0.zip"
    path.unlink()
    for replace in (lambda: None, path.mkdir):  # missing, then a folder of that name
        replace()
        assert library.find_tampered_files(run)["found"].to_list() == ["missing"]
        with pytest.raises(StorageError):
            library.read_run(run)


def test_damaged_manifest_is_refused_and_everything_trained_again(library, plan):
    run = seal_run(library, plan)
    manifest = library.folder(SPEC.partition_key, run.run_id) / "manifest.json"
    known = json.loads(manifest.read_bytes())
    backwards = {**known["folds"][0], "test_first": known["folds"][0]["test_last"], "test_last": "2000-01-03"}
    changes = [{"folds": []}, {"folds": [backwards]}, {"policies": {"../x": "0" * 64}}]
    for content in ("{", json.dumps({"run_id": "x"}), *(json.dumps({**known, **change}) for change in changes)):
        manifest.write_text(content)
        with pytest.raises(StorageError):
            library.read_latest(SPEC.partition_key)
        assert library.trained_keys(SPEC.partition_key, run.run_id) == set()
        assert not library.is_intact(SPEC.partition_key, run.run_id)
    manifest.unlink()
    for replace in (lambda: None, manifest.mkdir):
        replace()
        with pytest.raises(StorageError):
            library.read_latest(SPEC.partition_key)


@pytest.mark.parametrize(
    ("field", "value"), [("run_id", "f" * 16), ("partition_key", "b@55555555"), ("experiment", "b")]
)
def test_manifest_of_another_run_is_refused(library, plan, field, value):
    run = seal_run(library, plan)
    manifest = library.folder(SPEC.partition_key, run.run_id) / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_bytes()), field: value}))
    with pytest.raises(StorageError):
        library.read_sealed(SPEC.partition_key, run.run_id)


def test_training_windows_are_those_of_the_cards(library, plan):
    run = seal_run(library, plan)
    windows = training_windows(run, library.read_run(run)).unique().sort("fold")
    days = [day.item() for day in plan.panel.sessions]
    expected = [(fold.index, days[fold.train_first], days[fold.train_last]) for fold in plan.folds]
    assert windows.rows() == expected


def test_save_and_seal_delete_checkpoints(library, plan):
    paths = [library.checkpoint_path(SPEC.partition_key, plan.run_id, key) for key in ((0, 0), (1, 2))]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"state")
    library.save(SPEC.partition_key, plan.run_id, trained_policy(plan, 0, 0))
    assert [path.exists() for path in paths] == [False, True]
    assert library.trained_keys(SPEC.partition_key, plan.run_id) == {(0, 0)}
    for fold, seed in plan.keys:
        library.save(SPEC.partition_key, plan.run_id, trained_policy(plan, fold, seed))
    paths[1].write_bytes(b"state")
    library.seal(plan)
    assert not list(paths[1].parent.glob("*.checkpoint"))


def test_unsealed_policies_can_be_read(library, plan):
    library.save(SPEC.partition_key, plan.run_id, trained_policy(plan, 1, 1))
    assert dict(library.read_unsealed(plan)) == {(1, 1): trained_policy(plan, 1, 1).archive}
    with pytest.raises(StorageError):
        library.read_sealed(SPEC.partition_key, plan.run_id)


def test_manifest_holds_sessions_of_folds_and_chosen_seeds(library, plan):
    for fold, seed in plan.keys:
        library.save(SPEC.partition_key, plan.run_id, trained_policy(plan, fold, seed))
    run = library.seal(plan, {0: {2: 1.0}, 1: {0: 1.0}})
    sessions = plan.panel.sessions
    assert run.as_parent.window == (sessions[206].item(), sessions[399].item())
    assert run.folds[0].train_last == sessions[199].item()
    assert library.read_latest(SPEC.partition_key).chosen == {0: 2, 1: 0}
    assert "weights" not in run.model_dump()
    assert run.seed_weights == {0: {2: 1.0}, 1: {0: 1.0}}


def test_manifest_and_its_digest_hold_the_exact_weights_of_seeds(library, plan):
    equal = seal_run(library, plan)
    weights = {0: {2: 0.1 + 0.2, 0: 0.7 - 1e-17, 1: 1e-300}, 1: {0: 0.5, 1: 0.25, 2: 0.25}}
    run = library.seal(plan, weights)
    read = library.read_latest(SPEC.partition_key)
    assert (read.chosen, read.seed_weights) == ({}, weights)
    assert list(read.weights[0]) == [2, 0, 1]
    assert equal.sha256 != run.sha256 == read.sha256


def test_manifest_digest_covers_the_fitted_thresholds(library, plan):
    unfitted = seal_run(library, plan)
    fitted = {0: Thresholds(drawdown=0.1 + 0.2), 1: Thresholds(turbulence=7.5)}
    run = library.seal(plan, {}, fitted)
    assert library.read_latest(SPEC.partition_key).thresholds == fitted
    other = run.model_copy(update={"thresholds": {**fitted, 1: Thresholds(turbulence=7.6)}})
    assert len({each.sha256 for each in (unfitted, run, other)}) == 3


def test_manifest_names_the_processor_outside_its_digest(library, plan):
    run = seal_run(library, plan)
    assert library.read_latest(SPEC.partition_key).processor == processor_name()
    older = run.model_copy(update={"processor": ""})
    assert older.sha256 == run.sha256
    assert "processor" not in older.model_dump()


def test_run_sealed_again_elsewhere_keeps_the_processor_that_trained_it(library, plan, monkeypatch):
    run = seal_run(library, plan)
    monkeypatch.setattr(policy_library, "processor_name", lambda: "another")
    assert library.seal(plan, run.seed_weights).processor == processor_name()


def test_manifest_without_thresholds_is_read(library, plan):
    run = seal_run(library, plan)
    path = library.folder(SPEC.partition_key, plan.run_id) / "manifest.json"
    assert "thresholds" not in json.loads(path.read_bytes())
    assert library.read_sealed(SPEC.partition_key, plan.run_id) == run
    assert run.thresholds == {}


def test_sealing_the_same_policies_gives_the_same_digest(library, plan):
    assert seal_run(library, plan).sha256 == seal_run(library, plan).sha256
