import pytest
from pydantic import ValidationError

from nvtrader_pipelines.llm.endpoint import KEY_VARIABLE, Endpoint

SECRET = "sk-swordfish"


def test_endpoint_has_defaults_besides_its_url():
    endpoint = Endpoint(base_url="http://127.0.0.1:8000/v1")
    assert endpoint.model == "nvidia/nemotron-3-super-120b-a12b"
    assert endpoint.vision_model == "nvidia/nemotron-3-nano-omni-30b-a3b-reasoning"
    assert (endpoint.max_seconds, endpoint.max_calls, endpoint.max_tokens) == (60.0, 200, 1_000_000)


@pytest.mark.parametrize(
    "base_url",
    [
        *("127.0.0.1:8000", "ftp://host/v1", "http://", "http://[::1", "http://host:99999"),
        *(f"https://ann:{SECRET}@host/v1", f"https://{SECRET}@host/v1", f"https://host/v1?key={SECRET}"),
    ],
)
def test_endpoint_with_another_url_is_refused_without_secrets(base_url):
    with pytest.raises(ValidationError) as caught:
        Endpoint(base_url=base_url)
    (problem,) = caught.value.errors()
    assert problem["loc"] == ("base_url",)
    assert SECRET not in problem["msg"]


@pytest.mark.parametrize("field", ["api_key", "key"])
def test_endpoint_with_a_key_names_the_variable(field):
    with pytest.raises(ValidationError, match=KEY_VARIABLE) as caught:
        Endpoint.model_validate({"base_url": "http://host/v1", field: SECRET})
    assert SECRET not in caught.value.errors()[0]["msg"]


@pytest.mark.parametrize("fields", [{"temperature": 1}, {"max_calls": 0}, {"max_seconds": "inf"}, {"model": ""}])
def test_endpoint_with_other_fields_or_values_is_refused(fields):
    with pytest.raises(ValidationError):
        Endpoint.model_validate({"base_url": "http://host/v1", **fields})
