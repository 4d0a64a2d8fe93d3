"""Routes of the lab: rows of a run, and previews of an experiment."""

import json

import pytest

from nvtrader_pipelines.runs.run_deletion import delete_run, plan_deletion
from nvtrader_pipelines.service.documents.row_pages import SOURCES, ActionRow, EquityRow, RewardRow, TrajectoryRow
from nvtrader_pipelines.storage.store import Store
from tests.homes import copy_home
from tests.service.api.conftest import client_of

TABLES = {
    "equity": EquityRow,
    "trajectories": TrajectoryRow,
    "reward-decomposition": RewardRow,
    "actions": ActionRow,
}


@pytest.fixture(scope="module")
def run_id(client):
    """Id of the trained run."""
    return client.get("/rl/runs").json()[-1]["run_id"]


@pytest.mark.parametrize("name", TABLES)
def test_all_pages_of_a_run_are_its_rows(client, built_home, run_id, name):
    source, after, rows = SOURCES[TABLES[name]], 0, []
    while after is not None:
        page = client.get(f"/rl/runs/{run_id}/{name}", params={"limit": 5_000, "after": after}).json()
        rows, after = rows + page["rows"], page["next"]
    stored = Store(built_home).tables.read(source.table, {"run_id": [run_id]}).select(source.schema.names())
    model = TABLES[name]
    assert rows == [json.loads(model.model_validate(row).model_dump_json()) for row in stored.iter_rows(named=True)]


def test_rows_are_those_of_an_account(client, run_id):
    equal = {"policy": "equal_weight", "kind": "baseline", "fold": 0}
    page = client.get(f"/rl/runs/{run_id}/equity", params={**equal, "limit": 7}).json()
    assert len(page["rows"]) == page["next"] == 7
    assert [{name: row[name] for name in equal} for row in page["rows"]] == [equal] * 7
    assert client.get(f"/rl/runs/{run_id}/equity", params={"policy": "' OR 1=1 --"}).json() == {
        "rows": [],
        "next": None,
    }


@pytest.mark.parametrize("name", [*TABLES, "episodes"])
def test_curves_of_a_run_are_thinned(client, run_id, name):
    page = client.get(f"/rl/runs/{run_id}/{name}", params={"points": 50, "policy": "equal_weight"}).json()
    assert page["next"] is None
    assert 0 < len(page["rows"]) <= 50 * 2 * 4  # terms, or folds


def test_episode_of_a_test_ends_with_the_equity_of_its_last_step(client, run_id):
    of = {"policy": "equal_weight", "phase": "test", "fold": 1}
    (episode,) = client.get(f"/rl/runs/{run_id}/episodes", params=of).json()["rows"]
    steps = client.get(f"/rl/runs/{run_id}/trajectories", params=of).json()["rows"]
    assert episode["n_steps"] == len(steps)
    assert episode["equity"] == steps[-1]["equity"]
    assert episode["reward"] == pytest.approx(sum(step["reward"] for step in steps))
    assert (episode["first_session"], episode["last_session"]) == (steps[0]["session"], steps[-1]["session"])


@pytest.mark.parametrize(
    "params",
    [
        {"limit": 0},
        {"limit": 10_001},
        {"after": -1},
        {"after": "x"},
        {"after": 10**30},
        {"points": 49},
        {"points": 5001},
        {"points": 50, "after": 0},
        {"fold": 2**31},
        {"policy": "x" * 201},
        {"none": 1},
    ],
)
def test_rows_out_of_bounds_are_refused(client, run_id, params):
    answer = client.get(f"/rl/runs/{run_id}/trajectories", params=params)
    assert (answer.status_code, answer.json()["status"]) == (422, 422)


def test_rows_of_no_run_are_not_found(client):
    assert client.get("/rl/runs/none/equity").status_code == 404


def test_deleted_run_has_the_rows_that_its_trial_keeps(built_home, run_id, tmp_path):
    home = copy_home(built_home, tmp_path / "home")
    client, store = client_of(home), Store(home)
    first = client.get(f"/rl/runs/{run_id}/trajectories", params={"limit": 10}).json()
    delete_run(store, plan_deletion(store, store.ledger.run(run_id), None), lambda _: None)
    following = client.get(f"/rl/runs/{run_id}/trajectories", params={"limit": 10, "after": first["next"]})
    assert (following.status_code, following.json()) == (200, {"rows": [], "next": None})
    assert client.get(f"/rl/runs/{run_id}").json()["run"]["status"] == "deleted"
    kinds = {row["kind"] for row in client.get(f"/rl/runs/{run_id}/equity").json()["rows"]}
    assert kinds <= {"baseline", "ensemble"}
