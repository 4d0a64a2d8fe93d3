import json

import jsonschema
import pytest
import yaml

from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT
from nvtrader_pipelines.service.documents.catalogue import FAMILIES
from tests.homes import EXPERIMENT
from tests.service.cli.error_lines import is_one_line_error


def test_the_families_are_listed_with_their_members(invoke):
    found = invoke("components")
    assert found.exit_code == 0
    assert all(f" {family} " in found.stdout for family in FAMILIES)
    assert "grpo, reinforce_plus_plus" in found.stdout
    assert f"{len(FAMILIES)} rows" in found.stdout


def test_the_families_in_json_are_their_members_by_name(invoke):
    listed = json.loads(invoke("components", "--json").stdout)
    assert set(listed) == set(FAMILIES)
    assert listed["splitters"] == ["walk_forward", "holdout", "combinatorial_purged", "purged_kfold"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_told_member_by_member_in_words_and_in_json(invoke, family):
    told, listed = invoke("components", family), json.loads(invoke("components", family, "--json").stdout)
    assert told.exit_code == 0
    for member in listed:
        assert f"{member['kind']}  {member['doc']}" in told.stdout
        assert all(f"\n  {field['name']}: " in told.stdout for field in member["fields"])


def test_a_member_is_told_with_defaults_bounds_and_units(invoke):
    told = invoke("components", "rewards").stdout
    assert "\n  eta: 0.01  (a number above 0 and at most 0.5)" in told
    assert "# reward per unit of one-way turnover" in told


@pytest.mark.parametrize("asked", ["components", "schema"])
def test_a_family_that_is_not_there_is_answered_with_those_that_are_and_the_nearest(invoke, asked):
    found = invoke(asked, "reward")
    assert found.exit_code == BAD_INPUT
    assert is_one_line_error(found.stderr)
    assert "there is no family 'reward'; there are sources, features" in found.stderr
    assert "did you mean 'rewards'?" in found.stderr


def test_the_schema_of_an_experiment_lets_through_what_is_one_and_nothing_else(invoke):
    checker = jsonschema.Draft202012Validator(json.loads(invoke("schema").stdout))
    assert list(checker.iter_errors(yaml.safe_load(yaml.safe_dump(EXPERIMENT)))) == []
    assert list(checker.iter_errors({**EXPERIMENT, "sees": [0, 1, 2]}))
    assert list(checker.iter_errors({**EXPERIMENT, "agent": {"kind": "ppo", "gamma": 1.5}}))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_schema(invoke, family):
    found = invoke("schema", family)
    assert found.exit_code == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(found.stdout))


def test_a_schema_can_be_written_to_a_file_which_is_named(invoke, tmp_path):
    path = tmp_path / "new" / "experiment.schema.json"
    found = invoke("schema", "--output", str(path))
    assert found.stdout.strip() == str(path)
    assert json.loads(path.read_text()) == json.loads(invoke("schema", "experiment").stdout)
