import pytest

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.spec import MarketSpec
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.specs import read_experiment, read_experiments, read_market


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


def test_of_two_files_of_one_name_neither_is_taken(home):
    for name in ("a.yaml", "b.yaml"):
        (home.experiments / name).write_text("name: a\n")
    found = read_experiments(home)
    assert found.specs == []
    assert [path.name for path in found.problems] == ["a.yaml", "b.yaml"]
    assert "a.yaml is called a like b.yaml" in found.problems[home.experiments / "a.yaml"]


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
    with pytest.raises(StorageError, match=r"market\.yaml is no valid market: sources\.0"):
        read_market(home)
