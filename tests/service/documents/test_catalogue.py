import json
from functools import cache

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from nvtrader_pipelines.components.component import kind_of, members
from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.features import FEATURES
from nvtrader_pipelines.service.documents.catalogue import FAMILIES, family_members, json_schema_of
from tests.experiments.hashes import SHIPPED

pytestmark = pytest.mark.slow

EVERY = ["experiment", *FAMILIES]
EVERY_MEMBER = [(family, member) for family, union in FAMILIES.items() for member in members(union)]
IDS = [f"{family}-{kind_of(member)}" for family, member in EVERY_MEMBER]


@cache
def validator(name):
    return Draft202012Validator(json_schema_of(name), format_checker=Draft202012Validator.FORMAT_CHECKER)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_schema_is_valid_in_its_dialect_with_title_and_description(name):
    found = json_schema_of(name)
    Draft202012Validator.check_schema(found)
    assert found["$schema"] == Draft202012Validator.META_SCHEMA["$schema"]
    assert found["title"]
    assert found["description"]
    json.dumps(found)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "member"), EVERY_MEMBER, ids=IDS)
def test_family_schema_requires_kind_and_forbids_unknown_fields(family, member):
    document = member().model_dump(mode="json")
    assert validator(family).is_valid(document)
    assert validator(family).is_valid({"kind": document["kind"]})
    assert not validator(family).is_valid({**document, "unheard_of": 1})
    del document["kind"]
    assert not validator(family).is_valid(document)


def test_experiment_schema_accepts_shipped_and_extending_experiments():
    for path in SHIPPED:
        content = json.loads(json.dumps(yaml.safe_load(path.read_text()), default=str))
        assert list(validator("experiment").iter_errors(content)) == []
    assert validator("experiment").is_valid({"extends": "base.yaml", "name": "a"})
    assert validator("experiment").is_valid(ExperimentSpec(name="a").model_dump(mode="json"))


def test_schema_holds_unit_comment_of_a_field():
    environment = json_schema_of("experiment")["$defs"]["EnvSpec"]["properties"]
    assert environment["lookback"]["description"] == "sessions of returns observed"
    assert environment["lookback"]["maximum"] == 60


def test_mapping_field_states_type_of_its_values():
    (sectors,) = (
        field for info in family_members("limits") if info.kind == "sector_cap" for field in info.fields
        if field.name == "sectors"
    )  # fmt: skip
    assert sectors.allowed == "a mapping of names to text"
    with pytest.raises(ValidationError) as refused:
        ExperimentSpec.model_validate(
            {"name": "a", "pipeline": {"limits": [{"kind": "sector_cap", "sectors": {"AAPL": 3}}]}}
        )
    assert (
        explain(refused.value, ExperimentSpec)
        == "pipeline.limits.0.sectors.AAPL: found 3, but must be text; write it in quotes"
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_family_members_hold_docstring_and_fields(family):
    found = family_members(family)
    assert [info.kind for info in found] == [kind_of(member) for member in members(FAMILIES[family])]
    for info, member in zip(found, members(FAMILIES[family]), strict=True):
        assert info.doc.endswith((".", ":", ",")) or info.doc
        assert [field.name for field in info.fields] == [name for name in member.model_fields if name != "kind"]
        assert {field.name: field.default for field in info.fields} == {
            name: to_jsonable_python(value) for name, value in member() if name != "kind"
        }


def test_field_line_holds_default_bounds_and_unit():
    by_name = {field.name: field.line for field in family_members("terminations")[0].fields}
    assert by_name["limit"] == "limit: 0.3  (a number above 0 and below 1)  # fraction of the highest equity"
    agents = {info.kind: info for info in family_members("agents")}
    backbone = next(field.line for field in agents["ppo"].fields if field.name == "backbone")
    assert backbone.startswith("backbone: mlp  (a mapping whose kind is one of ")


def test_default_features_are_members_of_the_family():
    kinds = {info.kind for info in family_members("features")}
    assert {feature.kind for feature in FEATURES} <= kinds
