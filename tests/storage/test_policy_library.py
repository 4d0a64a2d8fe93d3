import json

import polars as pl
import pytest
import torch

from nvtrader_pipelines.envs.observations.builder import ObservationScaler
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.run_store import TrainedPolicy
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.policies.agents import Fit
from nvtrader_pipelines.policies.archive import write_archive
from nvtrader_pipelines.policies.rollout_tables import TRAJECTORY
from nvtrader_pipelines.policies.training import TrainingTask
from nvtrader_pipelines.portfolio.pipeline import Thresholds
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.policy_library import PolicyLibrary
from tests.markets import synthetic_panel

SPEC = ExperimentSpec(name="a")


@pytest.fixture(scope="module")
def plan():
    panel = synthetic_panel(400)
    return RunPlan(SPEC, panel, panel_digest(panel), (Fold(0, 0, 199, 206, 299), Fold(1, 0, 299, 306, 399)))


@pytest.fixture
def library(home):
    return PolicyLibrary(home)


def trained(plan, fold, seed, weight=1.0):
    task = TrainingTask(
        fold, seed, (plan.folds[fold].train_first, plan.folds[fold].train_last), SPEC.environment, SPEC.agent
    )
    fit = Fit({"weight": torch.full((2,), weight)}, ObservationScaler(), [])
    return TrainedPolicy(fold, seed, write_archive(plan.card(task, fit), fit.tensors), pl.DataFrame(schema=TRAJECTORY))


def sealed(library, plan):
    for fold, seed in plan.keys:
        library.save(SPEC.partition_key, plan.run_id, trained(plan, fold, seed))
    return library.seal(plan)


def test_a_sealed_run_is_read_back_by_fold_and_seed(library, plan):
    run = sealed(library, plan)
    assert library.latest(SPEC.partition_key) == run
    contents = library.read_run(run)
    assert sorted(contents) == sorted(plan.keys)
    assert contents[1, 2] == trained(plan, 1, 2).archive


def test_training_goes_on_where_it_was_interrupted(library, plan):
    assert library.done(SPEC.partition_key, plan.run_id) == set()
    library.save(SPEC.partition_key, plan.run_id, trained(plan, 0, 1))
    assert library.done(SPEC.partition_key, plan.run_id) == {(0, 1)}


def test_a_half_written_policy_is_not_there(library, plan):
    folder = library.folder(SPEC.partition_key, plan.run_id)
    path = library.save(SPEC.partition_key, plan.run_id, trained(plan, 0, 0))
    (folder / f".{path.name}.x1.tmp").write_bytes(path.read_bytes()[:100])  # what a kill during the write leaves
    (folder / "fold-0-seed-1.zip").write_bytes(path.read_bytes()[:100])  # what a disk error leaves
    assert library.done(SPEC.partition_key, plan.run_id) == {(0, 0)}


def test_a_run_with_a_missing_policy_is_never_sealed(library, plan):
    for fold, seed in plan.keys[:-1]:
        library.save(SPEC.partition_key, plan.run_id, trained(plan, fold, seed))
    with pytest.raises(StorageError, match=r"misses fold-1-seed-2\.zip; train the experiment again"):
        library.seal(plan)
    with pytest.raises(StorageError, match="has no trained policies"):
        library.latest(SPEC.partition_key)


def test_a_policy_changed_after_sealing_is_refused_by_its_digest_and_trained_again(library, plan):
    run = sealed(library, plan)
    library.save(SPEC.partition_key, plan.run_id, trained(plan, 0, 0, weight=2.0))
    assert library.tampered(run)["file"].to_list() == ["fold-0-seed-0.zip"]
    with pytest.raises(
        StorageError, match=r"1 policy files of a@.* are not those that were sealed \(fold-0-seed-0.zip\)"
    ):
        library.read_run(run)
    assert (0, 0) not in library.done(SPEC.partition_key, plan.run_id)
    assert len(library.done(SPEC.partition_key, plan.run_id)) == len(plan.keys) - 1


def test_a_policy_removed_after_sealing_is_refused(library, plan):
    run = sealed(library, plan)
    path = library.folder(SPEC.partition_key, plan.run_id) / "fold-0-seed-0.zip"
    path.unlink()
    for make in (lambda: None, path.mkdir):  # a folder in its place is no policy either
        make()
        assert library.tampered(run)["found"].to_list() == ["missing"]
        with pytest.raises(StorageError, match="not those that were sealed"):
            library.read_run(run)


def test_a_damaged_manifest_is_said_in_one_sentence(library, plan):
    run = sealed(library, plan)
    manifest = library.folder(SPEC.partition_key, run.run_id) / "manifest.json"
    known = json.loads(manifest.read_bytes())
    backwards = {**known["folds"][0], "test_first": known["folds"][0]["test_last"], "test_last": "2000-01-03"}
    changes = [{"folds": []}, {"folds": [backwards]}, {"policies": {"../x": "0" * 64}}]
    for content in ("{", json.dumps({"run_id": "x"}), *(json.dumps({**known, **change}) for change in changes)):
        manifest.write_text(content)
        with pytest.raises(StorageError, match=r"manifest\.json is missing or damaged; remove") as caught:
            library.latest(SPEC.partition_key)
        assert f"remove {manifest.parent} and train again" in str(caught.value)  # other runs stay
    manifest.unlink()
    for make in (lambda: None, manifest.mkdir):
        make()
        with pytest.raises(StorageError, match=r"manifest\.json is missing or damaged; remove"):
            library.latest(SPEC.partition_key)


@pytest.mark.parametrize(
    ("field", "value"), [("run_id", "f" * 16), ("partition_key", "b@55555555"), ("experiment", "b")]
)
def test_a_manifest_of_another_run_than_its_folders_is_refused(library, plan, field, value):
    run = sealed(library, plan)
    manifest = library.folder(SPEC.partition_key, run.run_id) / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_bytes()), field: value}))
    with pytest.raises(StorageError, match=rf"must be of run {run.run_id} of a@\w+, but says that it is of .*{value}"):
        library.sealed(SPEC.partition_key, run.run_id)


def test_the_training_windows_come_from_the_cards(library, plan):
    windows = library.training_windows(sealed(library, plan)).unique().sort("fold")
    days = [day.item() for day in plan.panel.sessions]
    expected = [(fold.index, days[fold.train_first], days[fold.train_last]) for fold in plan.folds]
    assert windows.rows() == expected


def test_a_policy_ends_its_checkpoint_and_the_seal_those_that_a_kill_left(library, plan):
    paths = [library.checkpoint(SPEC.partition_key, plan.run_id, key) for key in ((0, 0), (1, 2))]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"state")
    library.save(SPEC.partition_key, plan.run_id, trained(plan, 0, 0))
    assert [path.exists() for path in paths] == [False, True]
    assert library.done(SPEC.partition_key, plan.run_id) == {(0, 0)}
    for fold, seed in plan.keys:
        library.save(SPEC.partition_key, plan.run_id, trained(plan, fold, seed))
    paths[1].write_bytes(b"state")
    library.seal(plan)
    assert not list(paths[1].parent.glob("*.checkpoint"))


def test_what_is_kept_of_a_run_can_be_read_before_it_is_sealed(library, plan):
    library.save(SPEC.partition_key, plan.run_id, trained(plan, 1, 1))
    assert dict(library.kept(plan)) == {(1, 1): trained(plan, 1, 1).archive}
    with pytest.raises(StorageError, match="missing or damaged"):
        library.sealed(SPEC.partition_key, plan.run_id)


def test_the_manifest_holds_the_folds_by_their_sessions_and_the_seeds_chosen(library, plan):
    for fold, seed in plan.keys:
        library.save(SPEC.partition_key, plan.run_id, trained(plan, fold, seed))
    run = library.seal(plan, {0: 2, 1: 0})
    sessions = plan.panel.sessions
    assert run.as_parent.window == (sessions[206].item(), sessions[399].item())
    assert run.folds[0].train_last == sessions[199].item()
    assert library.latest(SPEC.partition_key).chosen == {0: 2, 1: 0}


def test_the_manifest_holds_what_the_timing_was_fitted_to_and_its_digest_tells_if_that_is_changed(library, plan):
    unfitted = sealed(library, plan)
    fitted = {0: Thresholds(drawdown=0.1 + 0.2), 1: Thresholds(turbulence=7.5)}
    run = library.seal(plan, {}, fitted)
    assert library.latest(SPEC.partition_key).thresholds == fitted
    other = run.model_copy(update={"thresholds": {**fitted, 1: Thresholds(turbulence=7.6)}})
    assert len({each.sha256 for each in (unfitted, run, other)}) == 3


def test_a_manifest_from_before_there_were_thresholds_still_opens(library, plan):
    run = sealed(library, plan)
    path = library.folder(SPEC.partition_key, plan.run_id) / "manifest.json"
    assert "thresholds" not in json.loads(path.read_bytes())
    assert library.sealed(SPEC.partition_key, plan.run_id) == run
    assert run.thresholds == {}


def test_the_same_policies_have_the_same_digest(library, plan):
    assert sealed(library, plan).sha256 == sealed(library, plan).sha256
