import pytest

from nvtrader_pipelines.runs import pipeline_state
from nvtrader_pipelines.runs.pipeline_state import read_pipeline_state, record_pipeline_state
from nvtrader_pipelines.storage.store import Store


@pytest.fixture
def current(store):
    """Store whose pipeline is up to date, with an experiment and views."""
    (store.home.experiments / "a.yaml").write_text("name: a\n")
    store.home.duckdb_file.parent.mkdir(parents=True)
    store.home.duckdb_file.touch()
    record_pipeline_state(store, ["a"], ["a@12345678"])
    return store


def test_recorded_state_is_read_back_for_the_same_names_only(current):
    again = Store(current.home)
    assert read_pipeline_state(again, ["a"]) == ["a@12345678"]
    assert read_pipeline_state(again, []) is None


@pytest.mark.parametrize(
    "path",
    ["data/experiments/a.yaml", "data/landing/b.csv", "data/market.yaml", "data/promotion.yaml", "data/contests.yaml"],
)
def test_changed_input_has_something_to_do(current, path):
    (current.home.root / path).write_text(
        "sources: [{kind: sample}]\n" if path == "data/market.yaml" else "name: other\n"
    )
    assert read_pipeline_state(Store(current.home), ["a"]) is None


def test_changed_engine_has_something_to_do(current, monkeypatch):
    monkeypatch.setattr(pipeline_state, "code_of", lambda *specs: "ffffffffffff")
    assert read_pipeline_state(current, ["a"]) is None


def test_missing_policy_has_something_to_do(current):
    policy = current.home.policies / "a@12345678" / "run" / "fold-0-seed-0.zip"
    policy.parent.mkdir(parents=True)
    policy.write_bytes(b"zip")
    record_pipeline_state(current, ["a"], ["a@12345678"])
    assert read_pipeline_state(current, ["a"]) is not None
    policy.unlink()
    assert read_pipeline_state(current, ["a"]) is None


def test_home_without_views_has_something_to_do(current):
    current.home.duckdb_file.unlink()
    assert read_pipeline_state(current, ["a"]) is None
