import json

import jsonschema
import pytest
import yaml

from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT
from nvtrader_pipelines.service.documents.catalogue import FAMILIES
from tests.homes import EXPERIMENT
from tests.service.cli.error_lines import is_one_line_error


def test_components_lists_families_with_members(invoke):
    found = invoke("components")
    assert found.exit_code == 0
    assert all(f" {family} " in found.stdout for family in FAMILIES)
    assert "grpo, reinforce_plus_plus" in found.stdout
    assert f"{len(FAMILIES)} rows" in found.stdout


def test_components_json_maps_families_to_members(invoke):
    listed = json.loads(invoke("components", "--json").stdout)
    assert set(listed) == set(FAMILIES)
    assert listed["splitters"] == ["walk_forward", "holdout", "combinatorial_purged", "purged_kfold"]


@pytest.mark.parametrize("family", FAMILIES)
def test_family_output_lists_members_and_fields_as_in_json(invoke, family):
    shown, listed = invoke("components", family), json.loads(invoke("components", family, "--json").stdout)
    assert shown.exit_code == 0
    for member in listed:
        assert f"{member['kind']}  {member['doc']}" in shown.stdout
        assert all(f"\n  {field['name']}: " in shown.stdout for field in member["fields"])


def test_member_is_printed_with_defaults_bounds_and_units(invoke):
    shown = invoke("components", "rewards").stdout
    assert "\n  eta: 0.01  (a number above 0 and at most 0.5)" in shown
    assert "# reward per unit of one-way turnover" in shown


@pytest.mark.parametrize("name", ["exponential_utility", "exp_utility"])
def test_member_is_shown_alone_by_kind_or_alias(invoke, name):
    (member,) = json.loads(invoke("components", "rewards", name, "--json").stdout)
    assert (member["kind"], member["aliases"]) == ("exponential_utility", ["exp_utility"])
    assert "\n  also: exp_utility\n  weight: " in invoke("components", "rewards", name).stdout


def test_unknown_kind_exits_with_3_and_nearest_alias(invoke):
    found = invoke("components", "rewards", "exp_utilty")
    assert found.exit_code == BAD_INPUT
    assert is_one_line_error(found.stderr)
    assert "did you mean 'exp_utility'?" in found.stderr


@pytest.mark.parametrize("subcommand", ["components", "schema"])
def test_unknown_family_exits_with_3_and_nearest_name(invoke, subcommand):
    found = invoke(subcommand, "reward")
    assert found.exit_code == BAD_INPUT
    assert is_one_line_error(found.stderr)
    assert "there is no family 'reward'; there are sources, features" in found.stderr
    assert "did you mean 'rewards'?" in found.stderr


def test_experiment_schema_accepts_valid_and_rejects_invalid_documents(invoke):
    checker = jsonschema.Draft202012Validator(json.loads(invoke("schema").stdout))
    assert list(checker.iter_errors(yaml.safe_load(yaml.safe_dump(EXPERIMENT)))) == []
    assert list(checker.iter_errors({**EXPERIMENT, "sees": [0, 1, 2]}))
    assert list(checker.iter_errors({**EXPERIMENT, "agent": {"kind": "ppo", "gamma": 1.5}}))


def test_schema_with_output_writes_file_and_prints_its_path(invoke, tmp_path):
    path = tmp_path / "experiment.schema.json"
    found = invoke("schema", "--output", str(path))
    assert found.stdout.strip() == str(path)
    assert json.loads(path.read_text()) == json.loads(invoke("schema", "experiment").stdout)
