import json

import pytest
from pydantic import ValidationError

from nvtrader_pipelines.components.component import aliases_of, canonical_json, content_hash, kind_of
from tests.contracts.families import ADAPTERS, EVERY_MEMBER, FAMILIES, members

IDS = [f"{name}-{member.__name__}" for name, member in EVERY_MEMBER]


@pytest.mark.parametrize(("family", "member"), EVERY_MEMBER, ids=IDS)
def test_member_survives_json_with_the_same_hash(family, member):
    default = member()
    found = ADAPTERS[family].validate_json(canonical_json(default))
    assert type(found) is member
    assert found == default
    assert content_hash(found) == content_hash(default)


@pytest.mark.parametrize(("family", "member"), EVERY_MEMBER, ids=IDS)
def test_member_refuses_an_unknown_field(family, member):
    with pytest.raises(ValidationError):
        ADAPTERS[family].validate_python({"kind": member().kind, "unheard_of": 1})


ALIASES = [(family, member, alias) for family, member in EVERY_MEMBER for alias in aliases_of(member)]


@pytest.mark.parametrize(("family", "member", "alias"), ALIASES, ids=[f"{name}-{alias}" for name, _, alias in ALIASES])
def test_alias_gives_the_member_with_the_same_hash(family, member, alias):
    found = ADAPTERS[family].validate_python({"kind": alias})
    assert type(found) is member
    assert content_hash(found) == content_hash(member())


def test_alias_names_one_kind_and_is_no_kind_itself():
    kinds = {(alias, kind_of(member)) for _, member, alias in ALIASES}
    names = [alias for alias, _ in kinds]
    assert len(set(names)) == len(names)
    assert not set(names) & {kind_of(member) for _, member in EVERY_MEMBER}


@pytest.mark.parametrize("family", FAMILIES)
def test_kinds_of_a_family_are_distinct_and_have_a_json_schema(family):
    kinds = [member().kind for member in members(FAMILIES[family])]
    assert len(set(kinds)) == len(kinds)
    schema = json.dumps(ADAPTERS[family].json_schema())
    assert all(kind in schema for kind in kinds)
