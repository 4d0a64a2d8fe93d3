import json
from typing import Literal

import pytest
from pydantic import ValidationError

import nvtrader_pipelines
from nvtrader_pipelines.components import Component, canonical_json, content_hash


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


def test_importing_the_package_registers_its_environment():
    import gymnasium

    assert nvtrader_pipelines.__doc__
    assert "nvtrader/PortfolioCVaR-v0" in gymnasium.registry
