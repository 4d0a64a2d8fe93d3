"""Routes of trainings, the ratio curve and the policy library."""

import json

from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.storage.store import Store
from tests.homes import copy_home
from tests.service.api.conftest import AUTHORIZED, client_of


def test_status_without_a_training_is_idle(client):
    assert client.get("/api/nemorl/status").json() == {"active": None, "curve": []}
    assert client.get("/api/nemorl/curve").json() == []


def test_ratio_curve_has_a_row_per_run_with_its_drawdown(client, built_home):
    rows = client.get("/api/nemorl/ratio-curve").json()
    runs = Store(built_home).ledger.runs()
    assert {row["run_id"] for row in rows} == set(runs.filter(kind="walk_forward")["run_id"])
    assert all(row["kind"] == "run" and row["max_drawdown"] >= 0 for row in rows)


def test_policies_are_those_of_the_command_line(client, invoke):
    of_api = client.get("/api/nemorl/policies").json()
    of_command = json.loads(invoke("policies", "--json").stdout)
    assert of_api == of_command


def test_policy_that_is_activated_trades(built_home, tmp_path):
    home = copy_home(built_home, tmp_path / "home")
    client = client_of(home)
    assert client.post("/api/nemorl/policies/activate", json={"policy": "none"}, headers=AUTHORIZED).status_code == 404
    name = client.get("/api/nemorl/policies").json()["policies"][0]["policy"]
    body = {"policy": name, "reason": "it is the newest"}
    answer = client.post("/api/nemorl/policies/activate", json=body, headers=AUTHORIZED)
    assert (answer.status_code, answer.json()["by"]) == (200, "ann")
    assert read_active(Store(home)).policy == name
    assert client.get("/api/nemorl/policies").json()["policies"][0]["active"]


def test_body_that_is_not_valid_is_explained_by_its_field(client):
    refused = client.post("/api/nemorl/train", json={"total_timesteps": 0}, headers=AUTHORIZED)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("total_timesteps: found 0, but must be")
