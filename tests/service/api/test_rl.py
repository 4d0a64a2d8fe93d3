"""Routes of experiments, runs and components."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from nvtrader_pipelines.service.api.problems import UNPARSED, WHOLE
from nvtrader_pipelines.service.documents.catalogue import FAMILIES
from tests.homes import EXPERIMENT, copy_home
from tests.service.api.conftest import AUTHORIZED, client_of


def test_run_is_found_by_id(client):
    run_id = client.get("/rl/runs").json()[-1]["run_id"]
    assert client.get(f"/rl/runs/{run_id[:8]}").json()["run"]["run_id"] == run_id
    assert client.get("/rl/runs/none").status_code == 404


def test_components_are_listed_by_family(client):
    kinds = client.get("/rl/components").json()
    assert list(kinds) == list(FAMILIES)
    assert "ppo" in kinds["agents"]
    (ppo,) = [member for member in client.get("/rl/components/agents").json() if member["kind"] == "ppo"]
    assert "learning_rate" in [field["name"] for field in ppo["fields"]]
    assert client.get("/rl/components/none").status_code == 404


def test_experiment_is_registered_once_per_content(built_home, tmp_path):
    client = client_of(copy_home(built_home, tmp_path / "home"))
    spec = {**EXPERIMENT, "name": "posted", "seeds": [3, 4, 5]}
    first, again, other = (
        client.post("/rl/experiments", json=body, headers=AUTHORIZED)
        for body in (spec, spec, {**spec, "seeds": [6, 7, 8]})
    )
    assert [answer.status_code for answer in (first, again, other)] == [201, 200, 201]
    assert [answer.json()["created"] for answer in (first, again, other)] == [True, False, True]
    assert first.json()["version_id"] == again.json()["version_id"] != other.json()["version_id"]
    assert first.json()["spec_hash"].startswith(first.json()["version_id"].partition("@")[2])
    wrong = client.post("/rl/experiments", json={**spec, "agent": {"kind": "none"}}, headers=AUTHORIZED)
    assert wrong.status_code == 422
    assert "none" in wrong.json()["detail"]


def test_experiment_posted_three_times_at_once_is_new_once(built_home, tmp_path):
    client = client_of(copy_home(built_home, tmp_path / "home"))
    assert client.get("/api/none").status_code == 404  # builds the routes, in which threads disturb each other
    spec = {**EXPERIMENT, "name": "posted", "seeds": [9, 10, 11]}
    with ThreadPoolExecutor(3) as pool:
        posts = [pool.submit(client.post, "/rl/experiments", json=spec, headers=AUTHORIZED) for _ in range(3)]
        answers = [post.result() for post in posts]
    assert sorted(answer.status_code for answer in answers) == [200, 200, 201]
    assert sum(answer.json()["created"] for answer in answers) == 1


def test_number_of_5000_digits_is_refused_in_words(client):
    digits = "9" * 5000
    headers = {**AUTHORIZED, "content-type": "application/json"}
    posted = client.post("/rl/experiments", content=f'{{"seeds": [{digits}]}}', headers=headers)
    started = client.post("/api/nemorl-autoresearch/start", content=f'{{"workers": {digits}}}', headers=headers)
    listed = client.get(f"/rl/runs/x/equity?limit={digits}")
    assert [each.status_code for each in (posted, started, listed)] == [422, 400, 422]
    assert posted.json()["detail"] == started.json()["detail"] == UNPARSED
    assert WHOLE in listed.json()["detail"]
    assert len(listed.json()["detail"]) < 200


def test_experiment_as_yaml_is_the_same_version(built_home, tmp_path):
    client = client_of(copy_home(built_home, tmp_path / "home"))
    spec = {**EXPERIMENT, "name": "posted"}
    of_json = client.post("/rl/experiments", json=spec, headers=AUTHORIZED)
    headers = {**AUTHORIZED, "content-type": "application/yaml; charset=utf-8"}
    of_yaml = client.post("/rl/experiments", content=yaml.safe_dump(spec), headers=headers)
    assert of_yaml.json() == {**of_json.json(), "created": False}


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/yaml", b"!!python/object/apply:os.system ['id']", 422),
        ("application/yaml", b"a: 1\na: 2", 422),
        ("application/yaml", b"- 1", 422),
        ("application/yaml", b"\xff", 422),
        ("application/yaml", b"[" * 30_000, 422),
        ("application/json", b"name: x", 422),
        ("application/json", b"[" * 30_000, 422),
        ("application/json", b"[]", 422),
        ("application/json", b'{"name": "../../x"}', 422),
        ("application/json", b" " * 300_000, 413),
        ("text/plain", b"{}", 415),
        ("application/x-www-form-urlencoded", b"name=x", 415),
    ],
)
def test_experiment_that_is_none_is_refused(client, kind, body, status):
    answer = client.post("/rl/experiments", content=body, headers={**AUTHORIZED, "content-type": kind})
    assert (answer.status_code, answer.json()["status"]) == (status, status)
