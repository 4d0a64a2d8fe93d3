from pathlib import Path

import pytest

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.spec import MarketSpec
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.specs import (
    document_differences,
    read_experiment,
    read_experiments,
    read_market,
    write_experiment,
)

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def problem_of(home, text, name="a.yaml"):
    path = home.experiments / name
    path.write_text(text)
    with pytest.raises(StorageError) as caught:
        read_experiment(path)
    return str(caught.value)


def test_a_name_alone_is_an_experiment(home):
    (home.experiments / "a.yaml").write_text("name: a\n")
    assert read_experiments(home).specs == [ExperimentSpec(name="a")]


def test_a_broken_file_does_not_hide_the_good_ones(home):
    (home.experiments / "a.yaml").write_text("name: a\n")
    (home.experiments / "b.yml").write_text("name: b\nseeds: [0]\n")
    found = read_experiments(home)
    assert [spec.name for spec in found.specs] == ["a"]
    assert list(found.problems) == [home.experiments / "b.yml"]


def test_limits_looser_than_the_hard_ones_of_the_desk_are_refused_with_both_numbers(home):
    looser = "{name: a, pipeline: {risk_limits: {max_position: 0.3}}}"
    (home.experiments / "a.yaml").write_text(looser)
    (home.experiments / "b.yaml").write_text("{name: b, pipeline: {risk_limits: {max_position: 0.2}}}")
    found = read_experiments(home)
    assert [spec.name for spec in found.specs] == ["b"]
    problem = found.problems[home.experiments / "a.yaml"]
    assert "max_position" in problem
    assert "0.3" in problem
    assert "0.25" in problem
    home.compliance.mkdir(parents=True)
    (home.compliance / "limits.yaml").write_text("max_position: 0.3\n")
    assert [spec.name for spec in read_experiments(home).specs] == ["a", "b"]


def test_a_variant_looser_than_the_desk_is_refused_too(home):
    (home.experiments / "a.yaml").write_text(
        "{name: a, design: {kind: ablation, field: pipeline.risk_limits.max_position, values: [0.1, 0.4]}}"
    )
    problem = read_experiments(home).problems[home.experiments / "a.yaml"]
    assert "0.4" in problem
    assert "0.25" in problem


def test_of_two_files_of_one_name_neither_is_taken(home):
    for name in ("a.yaml", "b.yaml"):
        (home.experiments / name).write_text("name: a\n")
    found = read_experiments(home)
    assert found.specs == []
    assert [path.name for path in found.problems] == ["a.yaml", "b.yaml"]
    assert "a.yaml is called a like b.yaml" in found.problems[home.experiments / "a.yaml"]


def test_of_an_ablation_and_a_file_named_like_its_variant_neither_is_taken(home):
    (home.experiments / "a.yaml").write_text(
        "{name: a, design: {kind: ablation, field: agent.gamma, values: [0, 0.5]}}"
    )
    (home.experiments / "b.yaml").write_text("name: a-gamma-0-5")
    found = read_experiments(home)
    assert found.specs == []
    assert "a.yaml is called a-gamma-0-5 like b.yaml" in found.problems[home.experiments / "a.yaml"]


def test_what_a_file_extends_is_resolved_before_hashing(home):
    (home.experiments / "a.yaml").write_text("{name: a, environment: {lookback: 10}, agent: {kind: ppo, gamma: 0.5}}")
    (home.experiments / "b.yaml").write_text("{extends: a.yaml, name: b, agent: {gamma: 0.7}}")
    written = ExperimentSpec.model_validate(
        {"name": "b", "environment": {"lookback": 10}, "agent": {"kind": "ppo", "gamma": 0.7}}
    )
    assert read_experiment(home.experiments / "b.yaml").spec_hash == written.spec_hash
    assert [spec.name for spec in read_experiments(home).specs] == ["a", "b"]


def test_a_file_that_extends_another_needs_a_name_of_its_own(home):
    (home.experiments / "base.yaml").write_text("name: base")
    assert problem_of(home, "extends: base.yaml").startswith("a.yaml is no valid experiment: name: is missing")


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_an_example_is_a_valid_experiment_or_what_one_extends(path):
    if path.stem == "base":
        assert "extends: base.yaml" in "".join(other.read_text() for other in path.parent.glob("*.yaml"))
    else:
        assert read_experiment(path).variants()


def test_the_examples_show_a_sweep_an_ablation_and_the_best_of_several_seeds():
    sweep = [read_experiment(path) for path in sorted((EXAMPLES / "sweep").glob("*.yaml")) if path.stem != "base"]
    assert len({spec.spec_hash for spec in sweep}) == len(sweep) == 3
    assert {spec.environment.lookback for spec in sweep} == {10}
    ablation = read_experiment(EXAMPLES / "ablation.yaml")
    assert [variant.environment.turnover_cost_bps for variant in ablation.variants()] == [0.0, 10.0, 50.0]
    assert read_experiment(EXAMPLES / "best-of-n.yaml").design.kind == "best_of_n"


def test_a_new_experiment_is_the_default_one_in_a_file_to_edit(home):
    path = write_experiment(home, "fresh")
    assert path == home.experiments / "fresh.yaml"
    assert read_experiment(path) == ExperimentSpec(name="fresh")
    assert "nvtrader components" in path.read_text()


def test_a_new_experiment_like_another_extends_its_file(home):
    (home.experiments / "first.yml").write_text("{name: one, description: said, environment: {lookback: 10}}")
    path = write_experiment(home, "two", "one")
    assert read_experiment(path) == ExperimentSpec.model_validate({"name": "two", "environment": {"lookback": 10}})
    assert "extends: first.yml" in path.read_text()


@pytest.mark.parametrize(
    ("name", "like", "why"),
    [
        ("one", None, "experiment one is there already, in .*first.yml; choose another name"),
        ("broken", None, "experiment broken is there already"),
        ("A b", None, "'A b' cannot be the name of an experiment: name: found 'A b', but must be text that matches"),
        ("../a", None, "cannot be the name of an experiment"),
        ("two", "on", "there is no experiment 'on'; there are broken, one; did you mean 'one'?"),
    ],
)
def test_a_new_experiment_overwrites_nothing_and_has_a_name_fit_for_one(home, name, like, why):
    (home.experiments / "first.yml").write_text("name: one")
    (home.experiments / "broken.yaml").write_text("[")
    with pytest.raises(StorageError, match=why):
        write_experiment(home, name, like)
    assert {path.name for path in home.experiments.iterdir()} == {"first.yml", "broken.yaml"}


def test_differences_are_the_fields_in_which_two_documents_differ():
    left = {"name": "a", "agent": {"kind": "ppo", "gamma": 0.5}, "seeds": [0, 1], "same": {"x": None}, "rewards": []}
    right = {"name": "b", "agent": {"kind": "sac"}, "seeds": [0, 2], "same": {"x": None}, "rewards": [{"weight": 1.0}]}
    assert document_differences(left, right).rows() == [
        ("name", "a", "b"),
        ("agent.kind", "ppo", "sac"),
        ("agent.gamma", "0.5", None),
        ("seeds.1", "1", "2"),
        ("rewards", "[]", None),
        ("rewards.0.weight", None, "1.0"),
    ]


def test_a_document_does_not_differ_from_itself():
    document = ExperimentSpec(name="a").model_dump(mode="json")
    assert document_differences(document, document).is_empty()
    assert document_differences(document, document).columns == ["field", "left", "right"]


def test_a_misspelt_field_is_named_with_the_nearest_one(home):
    problem = problem_of(home, "name: a\nenvironment: {lookbck: 10}\n")
    assert problem.startswith("a.yaml is no valid experiment: environment.lookbck: ")
    assert "did you mean 'lookback'?" in problem


def test_a_value_out_of_range_is_named_with_what_was_found(home):
    problem = problem_of(home, "name: a\nenvironment: {lookback: 4}\n")
    assert problem.endswith("environment.lookback: found 4, but must be a whole number from 5 to 60")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name: [a\n", "a.yaml is no YAML"),
        ("- a\n", "must hold a mapping of fields, but holds list"),
        ("", "must hold a mapping of fields, but holds NoneType"),
        ("name: a\nname: b\n", "the key 'name' is there twice"),
        ("name: !!python/object/apply:os.getcwd []\n", "a.yaml is no YAML"),
        ("name: A b\n", "name: "),
    ],
)
def test_what_is_no_spec_is_said_in_one_line(home, text, why):
    problem = problem_of(home, text)
    assert why in problem
    assert "\n" not in problem


def test_a_file_in_another_encoding_is_no_yaml(home):
    path = home.experiments / "a.yaml"
    path.write_bytes("name: ä\n".encode("latin-1"))
    with pytest.raises(StorageError, match=r"a\.yaml is no YAML"):
        read_experiment(path)


def test_the_shipped_experiments_and_market_are_valid():
    home = Home.find()
    found = read_experiments(home)
    assert found.problems == {}
    assert {"ppo-growth", "ppo-cvar", "ppo-residual"} <= {spec.name for spec in found.specs}
    assert [source.kind for source in read_market(home).sources] == ["sample", "landing"]


def test_without_a_file_the_market_is_the_default_one(home):
    assert read_market(home) == MarketSpec()


def test_a_wrong_market_is_said_in_one_line(home):
    home.market_file.write_text("sources: [{kind: tape}]\n")
    with pytest.raises(
        StorageError,
        match=r"market\.yaml is no valid market: sources\.0\.kind: found 'tape', but must be one of landing",
    ):
        read_market(home)
