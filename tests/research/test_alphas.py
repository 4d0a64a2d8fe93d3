"""Alphas of a home: their files, evaluations, and the experiments that trade them."""

import json
from pathlib import Path

import pytest

from nvtrader_pipelines import Pipeline
from nvtrader_pipelines.evaluation.multiple_testing import adjusted_p_values
from nvtrader_pipelines.evaluation.step_generators import Steps
from nvtrader_pipelines.market.features import Formula
from nvtrader_pipelines.research.alphas import NOT_EVALUATED, evaluate_alphas, list_alphas, read_alpha, read_alphas
from nvtrader_pipelines.storage.documents import read_document
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.specs import read_experiment
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ALPHAS

EXAMPLES = sorted((Path(__file__).parents[2] / "docs/examples/alphas").glob("*.yaml"))
WINNERS, SHORT, NOISE = (
    ["ts_mean", "close_return", 250],  # of names of which half always earn more
    ["ts_mean", "close_return", 2],
    ["ts_std", "low_return", 10],
)


def write_alpha(home, name, formula):
    home.alphas.mkdir(exist_ok=True)
    (home.alphas / f"{name}.yaml").write_text(f"formula: {json.dumps(formula)}\n")


@pytest.fixture
def pipeline(planted_home):
    for name, formula in {"winners": WINNERS, "short": SHORT, "noise": NOISE}.items():
        write_alpha(planted_home, name, formula)
    return Pipeline(planted_home.root, quiet=True)


def test_new_alpha_is_written_once_and_read_back(tmp_path):
    pipeline = Pipeline.create(tmp_path / "home", quiet=True)
    written = pipeline.alphas.new("fallen", "[neg, close_return]", description="Fell: by a session.")
    assert written.path == pipeline.home.alphas / "fallen.yaml"
    alpha = read_alpha(pipeline.home, "fallen")
    assert (alpha.formula, alpha.description) == (("neg", "close_return"), "Fell: by a session.")
    for name, formula in [
        ("fallen", "close_return"),
        ("../x", "[neg, close_return]"),
        ("Up", "[neg, close_return]"),
        ("other", "[neg, close_retun]"),
        ("other", "[neg, close_return]\nformula: x"),
        ("other", "[neg"),
    ]:
        with pytest.raises(StorageError):
            pipeline.alphas.new(name, formula)
    assert [path.name for path in pipeline.home.alphas.parent.rglob("*.yaml") if "alphas" in str(path)] == [
        "fallen.yaml"
    ]


def by_name(rows):
    return {row["name"]: row for row in rows.to_dicts()}


@pytest.mark.slow
def test_evaluation_adjusts_the_p_values_of_all_alphas_on_the_market(pipeline):
    rows = by_name(pipeline.alphas.evaluate())
    assert rows.keys() == {"winners", "short", "noise"}
    p_values = pipeline.table("research.alphas")["p_value"].to_numpy()
    adjusted = pipeline.table("research.alphas")["adjusted_p_value"].to_list()
    assert adjusted == adjusted_p_values(p_values, "benjamini_hochberg").tolist()
    assert rows["winners"]["mean_ic"] > 0.1
    assert {name: row["is_significant"] for name, row in rows.items() if name != "short"} == {
        "winners": True,
        "noise": False,
    }
    assert {(row["source"], row["n_tried"]) for row in rows.values()} == {("landing", 3)}


@pytest.mark.slow
def test_deleted_and_renamed_alphas_stay_one_trial_each(pipeline):
    before, home = by_name(pipeline.alphas.evaluate()), pipeline.home
    (home.alphas / "noise.yaml").unlink()
    (home.alphas / "winners.yaml").rename(home.alphas / "best.yaml")
    after = by_name(pipeline.alphas.evaluate("best"))
    assert after.keys() == {"best"}
    assert after["best"]["n_tried"] == 3
    assert after["best"]["adjusted_p_value"] == before["winners"]["adjusted_p_value"]
    assert set(pipeline.alphas.list()["name"]) == {"best", "short", "noise"}


@pytest.mark.slow
def test_alpha_without_data_is_a_trial_with_p_value_1(pipeline):
    write_alpha(pipeline.home, "still", ["mul", "volume_change", 0])
    row = by_name(pipeline.alphas.evaluate("still"))["still"]
    assert (row["n_sessions"], row["mean_ic"], row["p_value"], row["n_tried"]) == (0, None, 1.0, 1)
    assert row["note"]


def test_list_has_alphas_that_were_not_evaluated_and_broken_files(pipeline):
    (pipeline.home.alphas / "ahead.yaml").write_text("formula: [delay, close_return, -5]\n")
    notes = {name: row["note"] for name, row in by_name(pipeline.alphas.list()).items()}
    assert {name for name, note in notes.items() if note == NOT_EVALUATED} == {"winners", "short", "noise"}
    assert "later sessions are not known" in notes["ahead"]
    with pytest.raises(StorageError):
        pipeline.alphas.evaluate("ahead")


@pytest.mark.slow
def test_evaluation_reports_each_alpha_and_stores_nothing_before_its_end(pipeline):
    steps = evaluate_alphas(pipeline.store, ["winners", "noise"])
    assert [next(steps).stage for _ in range(3)] == ["start", "evaluate.step", "evaluate.step"]
    assert pipeline.store.tables.read(ALPHAS).is_empty()
    running = Steps(steps)
    assert [(step.stage, step.share) for step in running] == [("done", 1.0)]
    assert len(running.result) == len(list_alphas(pipeline.store).drop_nulls("p_value")) == 2


def test_unknown_alpha_or_source_is_refused(pipeline):
    with pytest.raises(NotFoundError, match="did you mean 'winners'"):
        pipeline.alphas.evaluate("winer")
    with pytest.raises(StorageError):
        pipeline.alphas.evaluate(source="nowhere")


def test_home_without_alphas_has_none_to_evaluate(store):
    assert list_alphas(store).is_empty()
    with pytest.raises(NotFoundError):
        next(evaluate_alphas(store, []))


@pytest.mark.parametrize("name", ["Winners", "a b", "-a", "a" * 64])
def test_file_whose_name_is_no_alphas_is_refused(home, name):
    write_alpha(home, name, NOISE)
    assert len(read_alphas(home).problems) == 1
    with pytest.raises(StorageError):
        read_alpha(home, name)


@pytest.mark.slow
def test_experiment_of_an_alpha_ranks_by_its_formula(pipeline):
    spec = read_experiment(pipeline.experiments.new("long", alpha="winners").path)
    feature = Formula(formula=WINNERS)
    assert (spec.agent.kind, spec.agent.feature, spec.market.features) == ("factor_rank", feature, (feature,))
    fitted = pipeline.experiments.new("fitted", alpha="winners", source="landing").path
    assert read_experiment(fitted).agent == spec.agent
    assert pipeline.experiments.validate("fitted")["problem"].to_list() == [None]


@pytest.mark.slow
def test_commands_write_the_rows_of_the_table(pipeline, command):
    invoke = command(pipeline.home)
    shown = invoke("alphas", "evaluate", "winners", "--json")
    assert [row["name"] for row in json.loads(shown.stdout)] == ["winners"]
    assert "winners" in invoke("alphas").stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_those_of_the_guide(path):
    guide = (path.parents[2] / "guides/alphas.md").read_text()
    assert Formula(formula=read_document(path)["formula"]).name
    assert f"# data/alphas/{path.name}\n{path.read_text()}" in guide


@pytest.mark.slow
def test_store_of_another_process_lists_the_same_rows(pipeline):
    rows = pipeline.alphas.evaluate()
    other = list_alphas(Store(Home(pipeline.home.root)))
    assert other.sort("name").equals(rows.sort("name"))
