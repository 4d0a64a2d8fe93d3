import pytest

from nvtrader_pipelines.llm.calls import Answer
from nvtrader_pipelines.llm.endpoint import KEY_VARIABLE, Endpoint
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.llm_files import VARIABLES, AnswerFiles, open_client, read_endpoint, read_key

URL = "http://127.0.0.1:8000/v1"
SECRET = "sk-swordfish"
DIGEST = "ab" * 32


def write(home, text):
    home.llm_file.parent.mkdir(parents=True, exist_ok=True)
    home.llm_file.write_text(text)


def test_home_without_file_and_url_has_no_endpoint(home, monkeypatch):
    monkeypatch.setenv(VARIABLES["model"], "m")
    assert read_endpoint(home) is None
    assert open_client(home) is None


def test_endpoint_is_the_file_with_variables_over_it(home, monkeypatch):
    write(home, f"base_url: {URL}\nmodel: small\nmax_calls: 5\n")
    assert read_endpoint(home) == Endpoint(base_url=URL, model="small", max_calls=5)
    monkeypatch.setenv(VARIABLES["model"], "large")
    monkeypatch.setenv(VARIABLES["base_url"], " ")
    assert read_endpoint(home) == Endpoint(base_url=URL, model="large", max_calls=5)


def test_url_of_the_environment_is_an_endpoint_alone(home, monkeypatch):
    monkeypatch.setenv(VARIABLES["base_url"], URL)
    assert read_endpoint(home) == Endpoint(base_url=URL)
    client = open_client(home)
    assert client is not None
    assert client.endpoint == Endpoint(base_url=URL)


@pytest.mark.parametrize(
    "text",
    [
        "model: m",
        f"base_url: {URL}\napi_key: {SECRET}",
        f"base_url: https://ann:{SECRET}@host/v1",
        f"base_url: {URL}\nmax_calls: many",
        "- base_url",
    ],
)
def test_bad_file_is_one_sentence_without_secrets(home, text):
    write(home, text)
    with pytest.raises(StorageError) as caught:
        read_endpoint(home)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "\n" not in str(caught.value)


def test_key_is_a_secret_of_the_environment(monkeypatch):
    assert read_key() is None
    monkeypatch.setenv(KEY_VARIABLE, f"{SECRET}\n")
    key = read_key()
    assert key is not None
    assert key.get_secret_value() == SECRET
    assert SECRET not in repr(key)


def test_key_with_other_characters_is_refused_without_its_value(monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, f"“{SECRET}”")
    with pytest.raises(StorageError) as caught:
        read_key()
    assert SECRET not in str(caught.value)


def test_answer_is_read_as_written_and_a_damaged_file_is_replaced(home):
    answers, answer = AnswerFiles(home), Answer(text="{}", n_input_tokens=1, n_output_tokens=2)
    assert answers.read(DIGEST) is None
    answers.write(DIGEST, answer)
    assert answers.read(DIGEST) == answer
    (path,) = home.llm_answers.iterdir()
    assert path.name == f"{DIGEST}.json"
    path.write_bytes(b'{"text": "to')
    assert answers.read(DIGEST) is None
    answers.write(DIGEST, answer)
    assert answers.read(DIGEST) == answer
