import json

import polars as pl
import pytest

from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.promotion.policy_cards import find_policy, read_library, read_library_card
from nvtrader_pipelines.promotion.promote import activate
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS, VALIDATION
from tests.homes import copy_home
from tests.promotion.activations import forget_activations, put_unreadable
from tests.runs.untrained import AT, EXPERIMENT, KEY, begun, planned, sealed

RULE = EXPERIMENT.model_copy(update={"name": "rule", "agent": EqualWeight(), "seeds": (0,)})


@pytest.fixture(scope="module")
def store(evaluated_home, tmp_path_factory):
    return Store(copy_home(evaluated_home, tmp_path_factory.mktemp("cards") / "home"))


@pytest.fixture(scope="module")
def run(store):
    """Evaluated run, beside an unevaluated and an interrupted one."""
    sealed(store, planned(store, RULE))
    half = planned(store, EXPERIMENT.model_copy(update={"name": "half"}))
    begun(store, half).finish(half.run_id, "interrupted")
    return store.policies.read_latest(KEY)


@pytest.fixture
def ledger(store):
    return store.ledger


@pytest.mark.slow
def test_library_has_a_card_for_every_policy_of_sealed_runs(store, run, ledger):
    library = read_library(store)
    assert {card.policy for card in library.cards} == {"small", "rule"}
    assert library.problems == ()
    whole = read_library(store, seeds=True)
    assert {card.policy for card in whole.cards} == {"small", "small/seed-0", "small/seed-1", "small/seed-2", "rule"}
    untested = {card.policy for card in whole.cards if "was not tested to the end" in (card.obstacle or "")}
    assert untested == {card.policy for card in whole.cards if not card.scores}
    assert {card.obstacle for card in whole.cards if card.scores} == {None}
    assert not any(card.active for card in whole.cards)
    assert {card.ref for card in whole.cards if card.run_id == run.run_id} >= {PolicyRef(run.run_id, "small/seed-1")}


@pytest.mark.slow
def test_card_scores_are_those_of_the_verdict(store, run, ledger):
    verdict = store.tables.read(EVALUATIONS, {"run_id": [run.run_id]}).filter(pl.col("period") == "from_2010")
    for policy in ("small", "small/seed-1"):
        score = read_library_card(store, PolicyRef(run.run_id, policy)).score or {}
        (row,) = verdict.filter(pl.col("policy") == policy).to_dicts()
        assert score == {name: row[name] for name in score}
        assert score["sharpe_low"] < score["sharpe"] < score["sharpe_high"]
        assert score["sharpe_difference_low"] < score["sharpe_difference"] < score["sharpe_difference_high"]
    card = read_library_card(store, PolicyRef(run.run_id, "small"))
    assert [row["period"] for row in card.scores] == ["from_2010", "all"]
    assert {row["policy"] for row in card.baselines} == {"equal_weight", "buy_and_hold"}


def test_card_has_the_provenance_of_its_policy(store, run, ledger):
    card = read_library_card(store, PolicyRef(run.run_id, "small"))
    assert (card.partition_key, card.spec_hash, card.code_version) == (KEY, run.spec_hash, run.code_version)
    assert (card.panel_digest, dict(card.snapshot_ids), card.source) == (run.panel_digest, run.snapshot_ids, "landing")
    assert card.processor == run.processor != ""
    assert card.seeds == (0, 1, 2)
    assert [(fold["train_first"], fold["test_last"]) for fold in card.folds] == [
        (fold.train_first, fold.test_last) for fold in run.folds
    ]
    assert {file["file"]: file["sha256"] for file in card.files} == run.policies
    assert all(file["matches"] for file in card.files)
    assert card.made_from is None


def test_card_names_the_parent_version(store, run, ledger):
    child = RULE.model_copy(update={"description": "the same, found by a search"})
    ledger.register(child, parent=RULE.partition_key)
    card = read_library_card(store, PolicyRef(sealed(store, planned(store, child)).run_id, "rule"))
    assert card.made_from == RULE.partition_key


def test_card_of_a_seed_has_its_files_only(store, run, ledger):
    card = read_library_card(store, PolicyRef(run.run_id, "small/seed-2"))
    assert card.seeds == (2,)
    assert {file["file"] for file in card.files} == {name for name in run.policies if name.endswith("-seed-2.zip")}


def test_card_of_unevaluated_policy_has_no_scores(store, run, ledger):
    (card,) = [card for card in read_library(store).cards if card.partition_key == RULE.partition_key]
    assert (card.scores, card.baselines, card.score, card.deflated_sharpe) == ((), (), None, None)


@pytest.mark.slow
def test_deflated_information_ratio_is_that_of_the_reported_period(store, run, ledger):
    rows = [("best_baseline", "all", 0.41), ("best_baseline", "from_2010", 0.2), ("zero", "all", 0.9)]
    known = [{"run_id": run.run_id, "against": against, "period": p, "deflated_sharpe": v} for against, p, v in rows]
    store.tables.replace(VALIDATION, pl.DataFrame(known, schema=VALIDATION.schema), {})
    assert read_library_card(store, PolicyRef(run.run_id, "small")).deflated_sharpe == 0.2
    assert read_library_card(store, PolicyRef(run.run_id, "small/seed-0")).deflated_sharpe is None


@pytest.mark.slow
def test_changed_files_are_marked_and_an_obstacle(store, run, ledger):
    path = store.policies.folder(run.partition_key, run.run_id) / "fold-0-seed-0.zip"
    content = path.read_bytes()
    path.write_bytes(content[:-9])
    for card in (read_library(store).cards[0], read_library_card(store, PolicyRef(run.run_id, "small"))):
        assert [file["file"] for file in card.files if not file["matches"]] == ["fold-0-seed-0.zip"]
        assert "are missing or were changed after sealing" in (card.obstacle or "")
    path.write_bytes(content)


def test_limits_looser_than_those_of_the_desk_are_an_obstacle(store, run, ledger):
    path = store.home.compliance / "limits.yaml"
    path.parent.mkdir()
    path.write_text("max_position: 0.2\n")
    card = read_library_card(store, PolicyRef(run.run_id, "small"))
    assert "risk_limits.max_position is 0.25, looser than the desk's 0.2" in (card.obstacle or "")
    path.unlink()


@pytest.mark.slow
def test_active_policy_is_marked_and_unreadable_one_is_reported(store, run, ledger):
    activate(store, PolicyRef(run.run_id, "small/seed-1"), "ann", "", AT)
    marked = [card.policy for card in read_library(store, seeds=True).cards if card.active]
    assert marked == ["small/seed-1"]
    put_unreadable(store)
    library = read_library(store)
    assert not any(card.active for card in library.cards)
    assert "the last activation of the audit" in library.problems[0]
    forget_activations(store)


@pytest.mark.slow
def test_damaged_manifest_is_reported_and_hides_no_other_policy(store, run, ledger):
    path = store.policies.folder(run.partition_key, run.run_id) / "manifest.json"
    content = path.read_bytes()
    for damaged in (content[:50], json.dumps({**json.loads(content), "folds": []}).encode()):
        path.write_bytes(damaged)
        library = read_library(store)
        assert {card.policy for card in library.cards} == {"rule"}
        assert "manifest.json is missing or damaged" in library.problems[0]
    path.write_bytes(content)


def test_find_policy_accepts_experiment_version_or_run_prefix(store, run, ledger):
    for text in ("small", KEY, run.run_id, run.run_id[:5]):
        assert find_policy(store, text) == PolicyRef(run.run_id, "small")
        assert find_policy(store, f"{text}/seed-1") == PolicyRef(run.run_id, "small/seed-1")


@pytest.mark.parametrize("text", ["nobody", "", "half"])
@pytest.mark.usefixtures("run")
def test_find_policy_of_unknown_name_raises(store, text):
    with pytest.raises(StorageError):
        find_policy(store, text)
