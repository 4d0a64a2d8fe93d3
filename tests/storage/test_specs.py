import os
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from nvtrader_pipelines.envs.terminations import StopProperly
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.sources import MarketSpec
from nvtrader_pipelines.policies.advantages import ReinforcePlusPlusAdvantage
from nvtrader_pipelines.portfolio.pipeline.gymrl_guard import GymrlGuard
from nvtrader_pipelines.storage.documents import MAX_BYTES
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.spec_versions import document_differences
from nvtrader_pipelines.storage.specs import (
    read_experiment,
    read_experiments,
    read_market,
    store_experiment,
    write_experiment,
)
from tests.homes import EXPERIMENT_FILES

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def read_problem(home, text, name="a.yaml"):
    path = home.experiments / name
    path.write_text(text)
    with pytest.raises(StorageError) as caught:
        read_experiment(path)
    return str(caught.value)


def test_experiment_file_with_only_a_name_is_valid(home):
    (home.experiments / "a.yaml").write_text("name: a\n")
    assert read_experiments(home).specs == [ExperimentSpec(name="a")]


def test_invalid_file_does_not_hide_valid_ones(home):
    (home.experiments / "a.yaml").write_text("name: a\n")
    (home.experiments / "b.yml").write_text("name: b\nseeds: [0]\n")
    found = read_experiments(home)
    assert [spec.name for spec in found.specs] == ["a"]
    assert list(found.problems) == [home.experiments / "b.yml"]


def test_experiment_looser_than_the_desk_is_refused_with_figures(home):
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


def test_experiment_with_a_variant_looser_than_the_desk_is_refused(home):
    (home.experiments / "a.yaml").write_text(
        "{name: a, design: {kind: ablation, field: pipeline.risk_limits.max_position, values: [0.1, 0.4]}}"
    )
    problem = read_experiments(home).problems[home.experiments / "a.yaml"]
    assert "0.4" in problem
    assert "0.25" in problem


def test_files_with_the_same_name_are_all_refused(home):
    for name in ("a.yaml", "b.yaml"):
        (home.experiments / name).write_text("name: a\n")
    found = read_experiments(home)
    assert found.specs == []
    assert [path.name for path in found.problems] == ["a.yaml", "b.yaml"]
    assert "a.yaml has the name a, as in b.yaml" in found.problems[home.experiments / "a.yaml"]


def test_file_named_like_a_variant_of_another_is_refused(home):
    (home.experiments / "a.yaml").write_text(
        "{name: a, design: {kind: ablation, field: agent.gamma, values: [0, 0.5]}}"
    )
    (home.experiments / "b.yaml").write_text("name: a-gamma-0-5")
    found = read_experiments(home)
    assert found.specs == []
    assert "a.yaml has the name a-gamma-0-5, as in b.yaml" in found.problems[home.experiments / "a.yaml"]


def test_extended_spec_hashes_like_the_resolved_one(home):
    (home.experiments / "a.yaml").write_text("{name: a, environment: {lookback: 10}, agent: {kind: ppo, gamma: 0.5}}")
    (home.experiments / "b.yaml").write_text("{extends: a.yaml, name: b, agent: {gamma: 0.7}}")
    written = ExperimentSpec.model_validate(
        {"name": "b", "environment": {"lookback": 10}, "agent": {"kind": "ppo", "gamma": 0.7}}
    )
    assert read_experiment(home.experiments / "b.yaml").spec_hash == written.spec_hash
    assert [spec.name for spec in read_experiments(home).specs] == ["a", "b"]


def test_extending_file_without_a_name_is_refused(home):
    (home.experiments / "base.yaml").write_text("name: base")
    assert read_problem(home, "extends: base.yaml").startswith("a.yaml is not a valid experiment: name: is missing")


@pytest.mark.parametrize("path", EXPERIMENT_FILES, ids=lambda path: path.stem)
def test_example_is_a_valid_experiment_or_a_base(path):
    if path.stem == "base":
        assert "extends: base.yaml" in "".join(other.read_text() for other in path.parent.glob("*.yaml"))
    else:
        assert read_experiment(path).variants()


def test_examples_hold_a_sweep_an_ablation_and_a_best_of_n():
    sweep = [read_experiment(path) for path in sorted((EXAMPLES / "sweep").glob("*.yaml")) if path.stem != "base"]
    assert len({spec.spec_hash for spec in sweep}) == len(sweep) == 3
    assert {spec.environment.lookback for spec in sweep} == {10}
    ablation = read_experiment(EXAMPLES / "ablation.yaml")
    assert [variant.environment.turnover_cost_bps for variant in ablation.variants()] == [0.0, 10.0, 50.0]
    assert read_experiment(EXAMPLES / "best-of-n.yaml").design.kind == "best_of_n"
    assert read_experiment(EXAMPLES / "meta-ensemble.yaml").design.kind == "meta_ensemble"


def test_example_of_reinforce_plus_plus_holds_the_nemo_rl_settings():
    spec = read_experiment(EXAMPLES / "reinforce-plus-plus.yaml")
    assert spec.agent.total_timesteps == 200_000
    assert spec.agent.advantage == ReinforcePlusPlusAdvantage(baseline="leave_one_out", global_normalization=True)
    assert spec.environment.stop_properly == StopProperly(coefficient=0.2, form="literal")


def test_examples_of_guards_hold_the_initial_and_the_calibrated_thresholds():
    initial, calibrated = (
        read_experiment(EXAMPLES / "guards" / f"{name}.yaml").pipeline.timing for name in ("initial", "calibrated")
    )
    assert initial == GymrlGuard()
    assert calibrated == GymrlGuard(
        max_drawdown=0.036, leverage_scale=0.6, min_trailing_return=-0.03, max_turnover=0.55, probe=0.002
    )


def test_new_experiment_file_holds_the_defaults(home):
    path = write_experiment(home, "fresh")
    assert path == home.experiments / "fresh.yaml"
    assert read_experiment(path) == ExperimentSpec(name="fresh")
    assert "nvtrader components" in path.read_text()


def test_new_experiment_like_another_extends_its_file(home):
    (home.experiments / "first.yml").write_text("{name: one, description: text, environment: {lookback: 10}}")
    path = write_experiment(home, "two", "one")
    assert read_experiment(path) == ExperimentSpec.model_validate({"name": "two", "environment": {"lookback": 10}})
    assert "extends: first.yml" in path.read_text()


@pytest.mark.parametrize("like", [None, "one"])
@pytest.mark.parametrize(
    ("old", "new", "is_draft"),
    [("", "", True), ("seeds", "seeds", True), ("name: two", "name: three", False), ("# Fields", "# My fields", False)],
)
def test_new_experiment_is_a_draft_until_its_file_is_edited(home, like, old, new, is_draft):
    (home.experiments / "one.yaml").write_text("name: one\n")
    path = write_experiment(home, "two", like)
    path.write_text(path.read_text().replace(old, new) if old else path.read_text())
    assert read_experiments(home).drafts == ({ExperimentSpec(name="two").partition_key} if is_draft else set())


def test_variants_of_a_new_experiment_are_drafts_too(home):
    sweep = "name: one\ndesign: {kind: ablation, field: environment.turnover_cost_bps, values: [0, 20]}\n"
    (home.experiments / "one.yaml").write_text(sweep)
    write_experiment(home, "two", "one")
    names = {key.partition("@")[0] for key in read_experiments(home).drafts}
    assert names == {"two", "two-turnover-cost-bps-0", "two-turnover-cost-bps-20"}


@pytest.mark.parametrize(
    ("name", "like"), [("one", None), ("broken", None), ("A b", None), ("../a", None), ("two", "on")]
)
def test_new_experiment_with_invalid_or_taken_name_is_refused(home, name, like):
    (home.experiments / "first.yml").write_text("name: one")
    (home.experiments / "broken.yaml").write_text("[")
    with pytest.raises(StorageError):
        write_experiment(home, name, like)
    assert {path.name for path in home.experiments.iterdir()} == {"first.yml", "broken.yaml"}


def test_document_differences_list_paths_and_both_values():
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


def test_document_differences_of_equal_documents_are_empty():
    document = ExperimentSpec(name="a").model_dump(mode="json")
    assert document_differences(document, document).is_empty()
    assert document_differences(document, document).columns == ["field", "left", "right"]


def test_misspelled_field_is_refused_with_a_suggestion(home):
    problem = read_problem(home, "name: a\nenvironment: {lookbck: 10}\n")
    assert problem.startswith("a.yaml is not a valid experiment: environment.lookbck: ")
    assert "did you mean 'lookback'?" in problem


def test_value_out_of_range_is_refused_with_its_bounds(home):
    problem = read_problem(home, "name: a\nenvironment: {lookback: 4}\n")
    assert problem.endswith("environment.lookback: found 4, but must be a whole number from 5 to 60")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [a\n", "a.yaml is not valid YAML"),
        ("- a\n", "must hold a mapping, in lines of `field: value`, but it holds a list"),
        ("", "must hold a mapping, in lines of `field: value`, but it is empty"),
        ("name: a\nname: b\n", "the key 'name' occurs twice"),
        ("name: !!python/object/apply:os.getcwd []\n", "a.yaml is not valid YAML"),
        ("name: A b\n", "name: "),
    ],
)
def test_invalid_experiment_is_refused_in_one_line(home, text, message):
    problem = read_problem(home, text)
    assert message in problem
    assert "\n" not in problem


def test_file_in_another_encoding_is_refused(home):
    path = home.experiments / "a.yaml"
    path.write_bytes("name: ä\n".encode("latin-1"))
    with pytest.raises(StorageError):
        read_experiment(path)


def test_shipped_experiments_and_market_are_valid():
    home = Home.find()
    found = read_experiments(home)
    assert found.problems == {}
    assert {"cufolio", "ppo-growth", "ppo-cvar", "ppo-residual"} <= {spec.name for spec in found.specs}
    assert [source.kind for source in read_market(home).sources] == ["sample", "landing"]


def test_market_without_a_file_is_the_default(home):
    assert read_market(home) == MarketSpec()


def test_invalid_market_is_refused(home):
    home.market_file.write_text("sources: [{kind: tape}]\n")
    with pytest.raises(StorageError):
        read_market(home)


FIRST = {"name": "a", "agent": {"kind": "ppo", "total_timesteps": np.int64(4096)}, "report_from": date(2016, 1, 1)}


def test_stored_mapping_is_read_as_the_same_experiment(home):
    spec = store_experiment(home, FIRST)
    assert (spec.agent.total_timesteps, spec.report_from) == (4096, date(2016, 1, 1))
    assert read_experiments(home).specs == [spec]


def test_stored_spec_replaces_file_of_an_earlier_call(home):
    store_experiment(home, FIRST)
    spec = ExperimentSpec(name="a", seeds=(3, 4, 5))
    assert store_experiment(home, spec) == spec
    assert read_experiments(home).specs == [spec]


def test_file_of_a_person_stays_if_it_holds_the_same_experiment(home):
    (home.experiments / "mine.yaml").write_text("name: a  # by hand\n")
    store_experiment(home, {"name": "a"})
    assert [path.name for path in home.experiments.iterdir()] == ["mine.yaml"]
    assert (home.experiments / "mine.yaml").read_text() == "name: a  # by hand\n"


def test_file_of_a_person_with_another_experiment_is_not_replaced(home):
    (home.experiments / "mine.yaml").write_text("name: a\n")
    with pytest.raises(StorageError):
        store_experiment(home, FIRST)
    assert (home.experiments / "mine.yaml").read_text() == "name: a\n"


def test_invalid_mapping_writes_no_file(home):
    with pytest.raises(StorageError):
        store_experiment(home, {"name": "a", "agent": {"kind": "ppo", "gama": 0.9}})
    assert list(home.experiments.iterdir()) == []


def test_pipe_or_odd_name_among_experiments_is_refused_alone(home):
    os.mkfifo(home.experiments / "pipe.yaml")
    (home.experiments / os.fsdecode(b"K\xe9.yaml")).write_text("name: odd\n")
    (home.experiments / "good.yaml").write_text("name: good\n")
    found = read_experiments(home)
    assert [spec.name for spec in found.specs] == ["good"]
    assert sorted(path.name for path in found.problems) == ["K\\xe9.yaml", "pipe.yaml"]
    assert "\n".join(found.problems.values()).encode()


@pytest.mark.slow
def test_file_of_many_unknown_keys_is_refused_within_seconds(home):
    (home.experiments / "keys.yaml").write_text("name: a\n" + "".join(f"k{i}: 1\n" for i in range(20_000)))
    (problem,) = read_experiments(home).problems.values()
    assert "20000 problems" in problem


def test_value_of_nested_aliases_is_refused_within_seconds(home):
    lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)), "name: *a11"]
    (home.experiments / "aliases.yaml").write_text("\n".join(lines))
    (problem,) = read_experiments(home).problems.values()
    assert "100,000 values at most" in problem


def test_large_file_is_refused_with_bound_and_size(home):
    (home.experiments / "large.yaml").write_text("# " + "x" * MAX_BYTES)
    (problem,) = read_experiments(home).problems.values()
    assert "must have at most 256 KiB, but has 256" in problem


def test_content_of_an_unknown_type_is_refused(home):
    with pytest.raises(StorageError):
        store_experiment(home, {"name": "q", "agent": object()})
