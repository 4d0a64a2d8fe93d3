import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.experiments.designs import value_at
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.sources import MarketSpec

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("kind"), inner, max_size=3)
    ),
    max_leaves=8,
)
WHOLE = ExperimentSpec.model_validate(
    {
        "name": "a",
        "environment": {
            "action": {"kind": "residual"},
            "costs": [{"kind": "volatility_spread"}],
            "terminations": [{"kind": "drawdown"}, {"kind": "risk_breach"}],
            "stop_properly": {},
        },
        "agent": {"kind": "grouped_ppo", "backbone": {"kind": "patchtst"}},
        "baselines": [{"kind": "anchor"}],
    }
).model_dump(mode="json")


def places(document, path=()):
    """List the path of every value in a document."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [path, *(place for name, inner in items for place in places(inner, (*path, name)))]


def holder_of(document, path):
    """Return the mapping or list that holds the value at a path."""
    return value_at(document, ".".join(map(str, path[:-1]))) if path[:-1] else document


PLACES = [path for path in places(WHOLE) if path]
NOT_DUMPED = {  # fields that are left out at their default
    ("market",): {"features"},
    ("environment",): {"financing", "pipeline"},
    ("agent",): {"start"},
    ("pipeline", "risk_limits"): {"max_short"},
}


def refusal(document, model=ExperimentSpec):
    with pytest.raises(ValidationError) as caught:
        model.model_validate(document)
    return explain(caught.value, model)


@given(path=st.sampled_from(PLACES), value=ANYTHING)
def test_any_document_is_accepted_or_explained_in_one_line(path, value):
    document = copy.deepcopy(WHOLE)
    holder_of(document, path)[path[-1]] = value
    try:
        ExperimentSpec.model_validate(document)
    except ValidationError as error:
        message = explain(error, ExperimentSpec)
        assert "\n" not in message
        assert "PydanticUndefined" not in message
        assert message.count("; (") <= 2


@pytest.mark.parametrize("path", [path for path in PLACES if isinstance(path[-1], str)], ids=lambda path: str(path[-1]))
def test_unknown_field_is_named_by_its_path_without_kinds(path):
    document = copy.deepcopy(WHOLE)
    holder = holder_of(document, path)
    holder["unheard_of"] = 1
    place = ".".join(map(str, [*path[:-1], "unheard_of"]))
    message = refusal(document)
    fields = holder.keys() - {"unheard_of"} | NOT_DUMPED.get(path[:-1], set())
    assert message.startswith(f"{place}: there is no field 'unheard_of'")
    assert message.endswith(f"allowed are {', '.join(sorted(fields))}")


def test_explanation_of_another_model_uses_its_fields():
    assert refusal({"sources": [{"kind": "yahoo", "symbls": []}]}, MarketSpec) == (
        "sources.0.symbls: there is no field 'symbls'; did you mean 'symbols'? "
        "allowed are calendar, first, kind, name, symbols"
    )


def test_document_that_is_no_mapping_is_explained():
    assert refusal(3).startswith("found 3, but must be a mapping of agent, baselines")


def test_long_value_is_shortened():
    message = refusal({"name": "x" * 500})
    assert "…" in message
    assert len(message) < 150
