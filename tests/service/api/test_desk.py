"""Routes of plans, accounts, scoreboard and kill switch."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from nvtrader_pipelines.evaluation.formats import number
from nvtrader_pipelines.orchestration.job_states import SCHEDULED_JOBS
from nvtrader_pipelines.service.api import desk
from nvtrader_pipelines.storage.account_book import SqliteBook
from tests.homes import copy_home
from tests.service.api.conftest import AUTHORIZED, client_of


def test_environment_is_the_default_of_experiments(client):
    assert client.get("/api/env").json()["lookback"] >= 1


def test_portfolio_of_an_unknown_account_is_404(client):
    assert client.get("/api/portfolio").json()["account"] == "paper"
    assert client.get("/api/portfolio", params={"account": "none"}).status_code == 404
    assert client.get("/api/plans", params={"account": "../x"}).status_code == 404


def test_plan_of_two_writers_is_decided_once_and_the_other_gets_409(waiting, tmp_path):
    home = copy_home(waiting, tmp_path / "home")
    clients = [client_of(home), client_of(home)]
    for client in clients:  # the first request builds the routes, in which two threads disturb each other's warnings
        assert client.get("/api/none").status_code == 404
    (plan,) = clients[0].get("/api/plans").json()
    assert plan["status"] == "waiting"

    def approve(client):
        return client.post(f"/api/plans/{plan['plan']}/approve", headers=AUTHORIZED).status_code

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(approve, clients)) == [200, 409]
    assert clients[1].get("/api/plans").json()[0]["status"] == "approved"
    reject = {"url": f"/api/plans/{plan['plan']}/reject", "headers": AUTHORIZED}
    assert clients[0].post(**reject, json={"reason": "late"}).status_code == 409
    assert clients[0].post(**reject, json={}).status_code == 422


def test_plan_of_changed_holdings_is_409_naming_them_and_can_be_rejected(waiting, tmp_path):
    home = copy_home(waiting, tmp_path / "home")
    client, book = client_of(home), SqliteBook(home, "paper")
    (plan,), (state,) = client.get("/api/plans").json(), book.states()
    book.clear()
    book.settle(state.model_copy(update={"weights": (0.25, *state.weights[1:-1], 0.75)}))

    def decide(decision):
        url = f"/api/plans/{plan['plan']}/{decision}"
        return client.post(url, json={"reason": "because"}, headers=AUTHORIZED)

    for answer in (decide("approve"), decide("override")):
        assert answer.status_code == 409
        assert f"{state.symbols[0]} from 0.00% to 25.00%" in answer.json()["detail"]
    assert decide("reject").status_code == 200


def test_plan_has_its_orders_and_the_record_of_the_page(waiting):
    client = client_of(waiting)
    (listed,) = client.get("/api/plans").json()
    plan = client.get(f"/api/plans/{listed['plan']}").json()
    assert [plan[name] for name in ("plan_id", "session", "status")] == [
        listed[name] for name in ("plan", "session", "status")
    ]
    assert sum(order["amount"] for order in plan["orders"]) == pytest.approx(0.0, abs=1e-6)
    record = plan["record"]
    assert [len(record["months"]), record["months"][-1]["month"]] == [6, record["last_session"][:7]]
    growth = math.prod(1.0 + month["policy_return"] for month in record["months"])
    assert record["policy_return"] == pytest.approx(growth - 1.0)
    client.get("/api/continuous-rl/changes")  # reads every section
    page = client.get("/continuous-rl.html").text
    for text in (record["baseline"], record["last_session"], *(month["month"] for month in record["months"])):
        assert text in page
    assert number(plan["orders"][0]["amount"], 0, sign=True) in page


def test_unknown_plan_is_404(client):
    body = {"reason": "why not"}
    assert client.get("/api/plans/none").status_code == 404
    assert client.post("/api/plans/none/override", json=body, headers=AUTHORIZED).status_code == 404
    assert client.post("/api/plans/..%2Fx/override", json=body, headers=AUTHORIZED).status_code in {404, 422}


def test_scheduler_lists_every_schedule_and_runs_what_one_requests(waiting, monkeypatch):
    client = client_of(waiting)
    states = client.get("/api/scheduler").json()
    assert [(state["schedule"], state["job"]) for state in states] == list(SCHEDULED_JOBS.items())
    monkeypatch.setattr(desk, "run_now", lambda _, schedule: (f"{schedule} 1", f"{schedule} 2"))
    answer = client.post("/api/scheduler/weekly_retrain/run", headers=AUTHORIZED)
    assert (answer.status_code, answer.json()) == (202, {"task_ids": ["weekly_retrain 1", "weekly_retrain 2"]})
    assert client.post("/api/scheduler/none/run", headers=AUTHORIZED).status_code == 404


def test_schedule_that_would_skip_now_is_409(client, monkeypatch):
    def skip(*_):
        raise ValueError("nothing is due")

    monkeypatch.setattr(desk, "run_now", skip)
    answer = client.post("/api/scheduler/eod_ingest/run", headers=AUTHORIZED)
    assert (answer.status_code, answer.json()["detail"]) == (409, "nothing is due")


def test_kill_switch_stops_and_resumes(waiting, tmp_path):
    client = client_of(copy_home(waiting, tmp_path / "home"))
    body = {"engaged": True, "reason": "a drill"}
    stopped = client.post("/api/kill-switch", json=body, headers=AUTHORIZED).json()
    assert "a drill" in stopped["kill_switch"]
    assert client.get("/api/kill-switch").json()["kill_switch"] == stopped["kill_switch"]
    again = client.post("/rl/halt-all", json={"reason": "once more"}, headers=AUTHORIZED).json()
    assert "already" in again["message"]
    resumed = client.post("/api/kill-switch", json={**body, "engaged": False}, headers=AUTHORIZED).json()
    assert resumed["kill_switch"] is None


def test_override_with_weights_makes_a_plan_of_them(waiting, tmp_path):
    client = client_of(copy_home(waiting, tmp_path / "home"))
    (plan,) = client.get("/api/plans").json()
    url = f"/api/plans/{plan['plan']}"
    name = client.get(url).json()["symbols"][0]

    def override(weights):
        body = {"reason": "too much", "weights": weights}
        return client.post(f"{url}/override", json=body, headers=AUTHORIZED)

    assert [override(weights).status_code for weights in ({name: 2.0}, {"none": 0.1}, {}, {name: "x"})] == [
        *(409, 409),
        *(422, 422),
    ]
    assert client.post(f"{url}/skip", headers=AUTHORIZED).json()["kind"] == "skipped"
    edited = override({name: 0.01}).json()["detail"]["edited"]
    newest, parent = client.get("/api/plans").json()
    child = client.get(f"/api/plans/{edited}").json()
    assert (newest["plan"], child["parent_id"], newest["status"]) == (edited, plan["plan"], "waiting")
    assert (child["stages"][-1]["weights"][0], parent["status"]) == (0.01, "overridden")
    assert client.post(f"/api/plans/{edited}/approve", headers=AUTHORIZED).status_code == 200
