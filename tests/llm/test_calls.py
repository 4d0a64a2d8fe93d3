import pytest

from nvtrader_pipelines.llm.calls import Budget, Call, Request
from nvtrader_pipelines.llm.endpoint import Endpoint

REQUEST = Request(
    purpose="report",
    prompt="report@1",
    model="m",
    system="s",
    user="u",
    schema_name="Paragraph",
    json_schema={"type": "object"},
)
ENDPOINT = Endpoint(base_url="http://host/v1", max_calls=2, max_tokens=100)


def calls(n_calls, n_tokens=0, *, is_cached=False):
    call = Call(
        purpose="p",
        prompt="p@1",
        model="m",
        digest="d",
        n_input_tokens=n_tokens,
        n_output_tokens=0,
        seconds=0.0,
        is_cached=is_cached,
    )
    return [call] * n_calls


def test_digest_is_the_same_for_equal_requests_only():
    assert REQUEST.digest == Request.model_validate_json(REQUEST.model_dump_json()).digest
    changes = {**dict.fromkeys(Request.model_fields, "x"), "json_schema": {}}
    digests = {REQUEST.model_copy(update={name: value}).digest for name, value in changes.items()}
    assert len(digests | {REQUEST.digest}) == len(Request.model_fields) + 1


@pytest.mark.parametrize(("n_calls", "n_tokens", "field"), [(1, 99, None), (2, 0, "max_calls"), (1, 100, "max_tokens")])
def test_budget_is_spent_by_calls_and_tokens(n_calls, n_tokens, field):
    problem = Budget(ENDPOINT, n_calls, n_tokens).problem
    assert field in problem if field else problem == ""
