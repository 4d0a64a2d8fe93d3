import json
from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError, create_model

from nvtrader_pipelines.components.component import (
    Component,
    canonical_json,
    content_hash,
    field_comments,
    kind_of,
    members,
)


class Inner(Component):
    kind: Literal["inner"] = "inner"
    share: float = 0.1


class Outer(Component):
    size: int = 3
    parts: tuple[Inner, ...] = (Inner(),)


def test_canonical_json_has_defaults_sorted_keys_and_exact_floats():
    assert canonical_json(Outer()) == '{"parts":[{"kind":"inner","share":0.1}],"size":3}'
    exact = json.loads(canonical_json(Inner(share=0.1 + 0.2)))["share"]
    assert exact == 0.1 + 0.2


def test_hash_is_of_canonical_json():
    assert content_hash(Outer()) == "c9f42d768c5c0d1fffc19a8c678c473a4d6b9906b525678becb6574db8ba0ace"
    assert content_hash(Outer()) == content_hash(Outer(size=3))
    assert content_hash(Outer()) != content_hash(Outer(parts=(Inner(share=0.2),)))


def test_integer_for_a_float_gives_the_same_hash():
    assert content_hash(Inner(share=1)) == content_hash(Inner(share=1.0))


def test_canonical_json_is_ascii():
    class Named(Component):
        name: str = "ß€"

    assert canonical_json(Named()).isascii()


def test_equal_numbers_have_one_canonical_form():
    assert canonical_json(Inner(share=-0.0)) == canonical_json(Inner(share=0)) == '{"kind":"inner","share":0.0}'
    assert canonical_json(Outer.model_validate({"size": 3.0})) == canonical_json(Outer(size=3))
    assert canonical_json(Inner.model_validate({"share": "1e-3"})) == canonical_json(Inner(share=0.001))


class Typed(Component):
    switch: bool = False
    counts: tuple[int, ...] = ()
    rates: dict[str, float] = Field(default={})
    share: float | None = None
    mixed: float | Literal["auto"] = "auto"
    type: int = 1  # a field may be called like a key of pydantic's schemas
    schema_version: int = 1


@pytest.mark.parametrize(
    "content",
    [
        {"switch": 1},
        {"switch": "true"},
        {"switch": 0.0},
        {"counts": [1, True]},
        {"counts": ["1"]},
        {"counts": [1.5]},
        {"rates": {"a": True}},
        {"share": False},
        {"share": "much"},
        {"mixed": True},
        {"type": True},
        {"type": "1"},
    ],
)
def test_value_of_another_type_is_refused_at_any_depth(content):
    with pytest.raises(ValidationError):
        Typed.model_validate(content)


@pytest.mark.parametrize(
    "content",
    [
        {"switch": True},
        {"counts": [1, 2.0]},
        {"rates": {"a": 1}},
        {"share": None},
        {"share": 1},
        {"mixed": "auto"},
        {"mixed": 2},
        {"type": 2},
    ],
)
def test_value_of_the_right_type_survives_json(content):
    found = Typed.model_validate(content)
    assert Typed.model_validate_json(canonical_json(found)) == found


class Unit(Component):
    """Something with units."""

    kind: Literal["unit"] = "unit"
    length: float = 1.0  # metres
    text: str = "# no comment"
    width: float = Field(
        default=1.0,
        gt=0.0,  # metres too
    )
    plain: int = 1


class LongUnit(Unit):
    """Longer."""

    length: float = 2.0  # kilometres


def test_field_comment_is_the_description_in_the_schema():
    assert field_comments(Unit) == {"length": "metres", "width": "metres too"}
    assert field_comments(LongUnit) == {"length": "kilometres", "width": "metres too"}
    properties = LongUnit.model_json_schema()["properties"]
    assert properties["length"]["description"] == "kilometres"
    assert "description" not in properties["plain"]


def test_schema_requires_the_kind():
    assert Unit.model_json_schema()["required"] == ["kind"]
    assert "required" not in Typed.model_json_schema()


def test_component_without_source_code_has_no_comments():
    made = create_model("Made", __base__=Component, size=(int, 3))
    assert field_comments(made) == {}


def test_members_are_the_classes_of_the_union():
    family = Annotated[Unit | Inner, Field(discriminator="kind")]
    assert members(family) == (Unit, Inner)
    assert members(Annotated[Unit, Field(discriminator="kind")]) == (Unit,)
    assert [kind_of(member) for member in members(family)] == ["unit", "inner"]


@pytest.mark.parametrize("content", [{"size": "three"}, {"size": 2.5}, {"unknown": 1}, {"parts": [{"share": "x"}]}])
def test_wrong_types_and_unknown_fields_are_refused(content):
    with pytest.raises(ValidationError):
        Outer.model_validate(content)


@pytest.mark.parametrize("share", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused(share):
    with pytest.raises(ValidationError):
        Inner(share=share)


def test_a_component_cannot_be_changed():
    with pytest.raises(ValidationError):
        Inner().share = 0.2


def test_invalid_default_is_refused():
    class Wrong(Component):
        size: int = "three"  # type: ignore[assignment]

    with pytest.raises(ValidationError):
        Wrong()
