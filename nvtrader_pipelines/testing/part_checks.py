"""Checks of every component: a frozen, documented spec that survives JSON and pickling."""

import pickle
from typing import Any

from pydantic import ValidationError

from nvtrader_pipelines.components.component import Component, canonical_json, content_hash, kind_of


def check_has_docstring_and_default(component: Component) -> None:
    """Require a docstring, a kind, and a valid default instance."""
    member = type(component)
    assert member.__doc__, f"{member.__name__} must have a docstring, whose first line `nvtrader components` shows"
    assert member().model_dump()["kind"] == kind_of(member)


def check_is_frozen(component: Component) -> None:
    """Require that no field can be set."""
    assert _is_refused(lambda: setattr(component, "kind", "other")), "a component must be frozen"


def check_refuses_unknown_fields(component: Component) -> None:
    """Require that an unknown field is an error."""
    content = {**component.model_dump(), "unheard_of": 1}
    assert _is_refused(lambda: type(component).model_validate(content)), "a component must refuse unknown fields"


def check_survives_json_with_its_hash(component: Component) -> None:
    """Require the same component and the same hash after JSON."""
    copy = type(component).model_validate_json(canonical_json(component))
    assert copy == component
    assert content_hash(copy) == content_hash(component)


def check_survives_pickling(component: Component) -> None:
    """Require the same component after pickling, as training processes receive it."""
    assert pickle.loads(pickle.dumps(component)) == component


def _is_refused(action: Any) -> bool:
    try:
        action()
    except ValidationError:
        return True
    return False


EVERY_PART = (
    check_has_docstring_and_default,
    check_is_frozen,
    check_refuses_unknown_fields,
    check_survives_json_with_its_hash,
    check_survives_pickling,
)
