import json
from importlib.metadata import EntryPoint
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from nvtrader_pipelines.components import family as module
from nvtrader_pipelines.components.component import Component, aliases_of
from nvtrader_pipelines.components.family import GROUP, Family, every_member, optional, parts_of_family


class Circle(Component):
    """A circle."""

    kind: Literal["circle"] = "circle"
    aliases: ClassVar[tuple[str, ...]] = ("disc", "Disc")
    radius: float = 1.0

    def area(self):
        return 3.0 * self.radius**2

    @optional
    def corners(self):
        return 0


class Square(Component):
    """A square."""

    kind: Literal["square"] = "square"

    def area(self):
        return 1.0

    @optional
    def corners(self):
        return 4


class Triangle(Component):
    """A part of another package."""

    kind: Literal["triangle"] = "triangle"
    height: int = 2

    def area(self):
        return 0.5 * self.height


class Line(Component):
    """A part that lacks what the family needs."""

    kind: Literal["line"] = "line"


class Round(Circle):
    """A part with the kind of an own member."""


class Disc(Component):
    """A part with the alias of an own member as its kind."""

    kind: Literal["disc"] = "disc"

    def area(self):
        return 1.0


@pytest.fixture
def install(monkeypatch):
    """Declare entry points, by name, to objects of this module."""

    def declare(**values):
        found = tuple(
            EntryPoint(name=f"shapes.{kind}", value=f"{value if ':' in value else f'{__name__}:{value}'}", group=GROUP)
            for kind, value in values.items()
        )
        monkeypatch.setattr(module, "part_entry_points", lambda: found)
        module._find_part.cache_clear()
        return Annotated[Circle | Square, Field(discriminator="kind"), Family("shapes")]

    yield declare
    module._find_part.cache_clear()


def test_part_is_validated_and_serialized_like_own_members(install):
    adapter = TypeAdapter(install(triangle="Triangle"))
    part = adapter.validate_python({"kind": "triangle", "height": 3})
    assert part == Triangle(height=3)
    assert adapter.validate_python(part) is part
    assert adapter.validate_json(adapter.dump_json(part)) == part
    assert adapter.dump_python(Circle()) == {"kind": "circle", "radius": 1.0}


def test_json_schema_and_members_contain_the_part(install):
    family = install(triangle="Triangle")
    schema = TypeAdapter(family).json_schema()
    assert set(schema["discriminator"]["mapping"]) == {"circle", "square", "triangle"}
    assert schema["$defs"]["Triangle"]["properties"]["height"]["default"] == 2
    assert every_member(family) == (Circle, Square, Triangle)
    assert json.dumps(schema)


def test_error_in_a_part_is_located_like_in_an_own_member(install):
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(install(triangle="Triangle")).validate_python({"kind": "triangle", "height": "x"})
    assert caught.value.errors()[0]["loc"] == ("triangle", "height")


def test_own_members_are_validated_without_reading_entry_points(install, monkeypatch):
    adapter = TypeAdapter(install())
    monkeypatch.setattr(module, "part_entry_points", lambda: pytest.fail("entry points were read"))
    assert adapter.validate_python({"kind": "square"}) == Square()


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("hexagon", "not_installed_package:Hexagon", "must be importable, but not_installed_package:Hexagon is not"),
        ("triangle", "Missing", "must be importable"),
        ("pentagon", "Triangle", "that of Triangle is 'triangle'"),
        ("json", "json:dumps", "must be a subclass of Component"),
        ("line", "Line", "must have area, as all shapes have"),
    ],
)
def test_unusable_part_is_a_sentence_and_leaves_the_others(install, kind, value, problem):
    family = install(**{kind: value, "triangle" if kind != "triangle" else "square": "Triangle"})
    found = parts_of_family(family)
    assert any(problem in each and f"shapes.{kind}" in each for each in found.problems)
    with pytest.raises(ValidationError):
        TypeAdapter(family).validate_python({"kind": kind})
    assert TypeAdapter(family).validate_python({"kind": "circle"}) == Circle()


def test_part_without_an_optional_method_of_all_own_members_is_usable(install):
    family = install(triangle="Triangle")
    assert parts_of_family(family).problems == []
    assert not hasattr(TypeAdapter(family).validate_python({"kind": "triangle"}), "corners")


@pytest.mark.parametrize("alias", ["disc", "Disc"])
def test_alias_becomes_the_kind_without_reading_entry_points(install, monkeypatch, alias):
    adapter = TypeAdapter(install())
    monkeypatch.setattr(module, "part_entry_points", lambda: pytest.fail("entry points were read"))
    document = {"kind": alias, "radius": 2.0}
    assert adapter.dump_python(adapter.validate_python(document)) == {"kind": "circle", "radius": 2.0}
    assert adapter.validate_json(json.dumps(document)) == Circle(radius=2.0)
    assert document["kind"] == alias


def test_alias_belongs_to_its_class_and_not_to_a_subclass():
    assert aliases_of(Round) == ()


def test_error_below_an_alias_is_located_in_its_kind(install):
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(install()).validate_python({"kind": "disc", "radius": "x"})
    assert caught.value.errors()[0]["loc"] == ("circle", "radius")


@pytest.mark.parametrize("kind", [["disc"], {"disc": 1}, None, 3])
def test_kind_that_is_no_text_is_refused(install, kind):
    with pytest.raises(ValidationError):
        TypeAdapter(install()).validate_python({"kind": kind})


def test_part_named_like_an_alias_is_reported_and_not_used(install):
    family = install(disc="Disc")
    assert "must have a kind of its own" in parts_of_family(family).problems[0]
    assert type(TypeAdapter(family).validate_python({"kind": "disc"})) is Circle


def test_part_with_the_kind_of_an_own_member_is_reported_and_not_used(install):
    family = install(circle="Round")
    assert "must have a kind of its own" in parts_of_family(family).problems[0]
    assert type(TypeAdapter(family).validate_python({"kind": "circle"})) is Circle
