import json

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from nvtrader_pipelines.components.component import kind_of, members
from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.features import FEATURES
from nvtrader_pipelines.service.documents.catalogue import FAMILIES, family_members, json_schema_of
from tests.experiments.hashes import SHIPPED

EVERY = ["experiment", *FAMILIES]
EVERY_MEMBER = [(family, member) for family, union in FAMILIES.items() for member in members(union)]
IDS = [f"{family}-{kind_of(member)}" for family, member in EVERY_MEMBER]


def validator(name):
    return Draft202012Validator(json_schema_of(name), format_checker=Draft202012Validator.FORMAT_CHECKER)


@pytest.mark.parametrize("name", EVERY)
def test_a_schema_is_one_of_the_dialect_it_names_with_a_title_and_a_description(name):
    found = json_schema_of(name)
    Draft202012Validator.check_schema(found)
    assert found["$schema"] == Draft202012Validator.META_SCHEMA["$schema"]
    assert found["title"]
    assert found["description"]
    json.dumps(found)


@pytest.mark.parametrize(("family", "member"), EVERY_MEMBER, ids=IDS)
def test_a_schema_accepts_every_members_defaults_and_refuses_a_strange_field_and_a_missing_kind(family, member):
    document = member().model_dump(mode="json")
    assert validator(family).is_valid(document)
    assert validator(family).is_valid({"kind": document["kind"]})
    assert not validator(family).is_valid({**document, "unheard_of": 1})
    del document["kind"]
    assert not validator(family).is_valid(document)


def test_the_schema_of_experiments_accepts_the_shipped_ones_and_one_that_extends_another():
    for path in SHIPPED:
        content = json.loads(json.dumps(yaml.safe_load(path.read_text()), default=str))
        assert list(validator("experiment").iter_errors(content)) == []
    assert validator("experiment").is_valid({"extends": "base.yaml", "name": "a"})
    assert validator("experiment").is_valid(ExperimentSpec(name="a").model_dump(mode="json"))


def test_a_schema_says_the_unit_that_stands_beside_the_field():
    environment = json_schema_of("experiment")["$defs"]["EnvSpec"]["properties"]
    assert environment["lookback"]["description"] == "sessions of returns observed"
    assert environment["lookback"]["maximum"] == 60


def test_a_mapping_of_any_names_says_what_stands_under_each():
    (sectors,) = (
        field for info in family_members("limits") if info.kind == "sector_cap" for field in info.fields
        if field.name == "sectors"
    )  # fmt: skip
    assert sectors.allowed == "a mapping of names to text"
    with pytest.raises(ValidationError) as refused:
        ExperimentSpec.model_validate(
            {"name": "a", "pipeline": {"limits": [{"kind": "sector_cap", "sectors": {"AAPL": 3}}]}}
        )
    assert explain(refused.value, ExperimentSpec) == "pipeline.limits.0.sectors.AAPL: found 3, but must be text"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_lists_every_member_with_its_document_and_fields(family):
    found = family_members(family)
    assert [info.kind for info in found] == [kind_of(member) for member in members(FAMILIES[family])]
    for info, member in zip(found, members(FAMILIES[family]), strict=True):
        assert info.doc.endswith((".", ":", ",")) or info.doc
        assert [field.name for field in info.fields] == [name for name in member.model_fields if name != "kind"]
        defaults = member().model_dump(mode="json")
        assert {field.name: field.default for field in info.fields} == {
            name: value for name, value in defaults.items() if name != "kind"
        }


def test_a_field_is_told_in_one_line_with_default_bounds_and_unit():
    by_name = {field.name: field.line for field in family_members("terminations")[0].fields}
    assert by_name["limit"] == "limit: 0.3  (a number above 0 and below 1)  # fraction of the highest equity"
    agents = {info.kind: info for info in family_members("agents")}
    backbone = next(field.line for field in agents["ppo"].fields if field.name == "backbone")
    assert backbone.startswith("backbone: mlp  (a mapping whose kind is one of ")


def test_the_features_are_made_of_the_family_of_features():
    kinds = {info.kind for info in family_members("features")}
    assert {feature.kind for feature in FEATURES} <= kinds


@pytest.mark.parametrize("call", [family_members, json_schema_of])
def test_a_family_that_is_not_there_is_refused_with_the_nearest_one(call):
    with pytest.raises(ValueError, match=r"no family 'agent'; there are sources, .*; did you mean 'agents'\?"):
        call("agent")
