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


def test_the_canonical_json_has_defaults_sorted_keys_and_exact_floats():
    assert canonical_json(Outer()) == '{"parts":[{"kind":"inner","share":0.1}],"size":3}'
    exact = json.loads(canonical_json(Inner(share=0.1 + 0.2)))["share"]
    assert exact == 0.1 + 0.2


def test_the_hash_is_that_of_the_canonical_json():
    assert content_hash(Outer()) == "c9f42d768c5c0d1fffc19a8c678c473a4d6b9906b525678becb6574db8ba0ace"
    assert content_hash(Outer()) == content_hash(Outer(size=3))
    assert content_hash(Outer()) != content_hash(Outer(parts=(Inner(share=0.2),)))


def test_an_integer_given_for_a_float_is_the_same_component():
    assert content_hash(Inner(share=1)) == content_hash(Inner(share=1.0))


def test_text_outside_ascii_hashes_the_same_everywhere():
    class Named(Component):
        name: str = "ß€"

    assert canonical_json(Named()).isascii()


def test_zero_has_one_form_and_numbers_the_form_of_their_field():
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
def test_truth_values_numbers_and_text_are_told_apart_wherever_they_stand(content):
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
def test_right_types_pass_in_python_and_in_json(content):
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


def test_the_comment_beside_a_field_is_what_its_schema_says_of_it():
    assert field_comments(Unit) == {"length": "metres", "width": "metres too"}
    assert field_comments(LongUnit) == {"length": "kilometres", "width": "metres too"}
    properties = LongUnit.model_json_schema()["properties"]
    assert properties["length"]["description"] == "kilometres"
    assert "description" not in properties["plain"]


def test_a_schema_asks_for_the_kind_as_a_document_must_name_it():
    assert Unit.model_json_schema()["required"] == ["kind"]
    assert "required" not in Typed.model_json_schema()


def test_a_component_without_its_source_has_no_comments():
    made = create_model("Made", __base__=Component, size=(int, 3))
    assert field_comments(made) == {}


def test_the_members_of_a_family_are_the_classes_of_its_union():
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
    with pytest.raises(ValidationError, match="finite"):
        Inner(share=share)


def test_a_component_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Inner().share = 0.2


def test_a_default_that_breaks_its_own_rule_is_refused():
    class Wrong(Component):
        size: int = "three"  # type: ignore[assignment]

    with pytest.raises(ValidationError):
        Wrong()
