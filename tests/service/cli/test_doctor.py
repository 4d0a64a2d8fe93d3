import pytest

from nvtrader_pipelines.service import doctor
from nvtrader_pipelines.service.doctor import check_language_model, run_check
from nvtrader_pipelines.storage.llm_files import KEY_VARIABLE
from nvtrader_pipelines.storage.store import Store

SECRET = "nvapi-swordfish"
ENDPOINT = "base_url: http://127.0.0.1:9/v1\nmodel: small\nvision_model: seeing\n"


@pytest.mark.parametrize("key", ["", SECRET, "nvapi-swördfish"])
def test_home_without_endpoint_has_no_problem(home, monkeypatch, key):
    monkeypatch.setenv(KEY_VARIABLE, key)
    (line,) = run_check(check_language_model, Store(home))
    assert (line.result, line.problem) == ("not configured", "")


@pytest.mark.parametrize(("key", "state"), [("", "not set"), (SECRET, "set")])
@pytest.mark.parametrize("version", ["3.57", ""])
def test_endpoint_is_shown_without_its_key(home, monkeypatch, key, state, version):
    monkeypatch.setenv(KEY_VARIABLE, key)
    monkeypatch.setattr(doctor, "installed_version", lambda _: version)
    home.llm_file.write_text(ENDPOINT)
    (line,) = run_check(check_language_model, Store(home))
    for words in (
        "http://127.0.0.1:9/v1",
        "small",
        "seeing",
        f"{KEY_VARIABLE} {state}",
        version or "openai not installed",
    ):
        assert words in line.result
    assert bool(line.problem) == (not version)
    assert SECRET not in line.result


@pytest.mark.parametrize(
    ("content", "key", "word"),
    [
        ("model: small", "", "base_url"),
        (f"{ENDPOINT}api_key: {SECRET}", "", KEY_VARIABLE),
        ("[", "", "llm.yaml"),
        (ENDPOINT, "nvapi-swördfish", KEY_VARIABLE),
    ],
)
def test_settings_that_are_not_valid_are_a_problem_without_the_key(home, monkeypatch, content, key, word):
    monkeypatch.setenv(KEY_VARIABLE, key)
    home.llm_file.write_text(content)
    (line,) = run_check(check_language_model, Store(home))
    assert word in line.problem
    assert "sw" not in line.problem
