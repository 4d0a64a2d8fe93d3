"""Routes of the lab: rows of a run, and previews of an experiment."""

import json

import numpy as np
import pytest
import yaml

from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.runs.registration import plan_variants
from nvtrader_pipelines.runs.row_pages import SOURCES, ActionRow, EquityRow, RewardRow, TrajectoryRow
from nvtrader_pipelines.runs.run_deletion import delete_run, plan_deletion
from nvtrader_pipelines.service.documents.preview_facts import MAX_VALUES, describe_part
from nvtrader_pipelines.storage.store import Store
from tests.homes import EXPERIMENT, copy_home
from tests.service.api.conftest import AUTHORIZED, client_of

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
    delete_run(store, plan_deletion(store, store.ledger.run(run_id), ()), lambda _: None)
    following = client.get(f"/rl/runs/{run_id}/trajectories", params={"limit": 10, "after": first["next"]})
    assert (following.status_code, following.json()) == (200, {"rows": [], "next": None})
    assert client.get(f"/rl/runs/{run_id}").json()["run"]["status"] == "deleted"
    kinds = {row["kind"] for row in client.get(f"/rl/runs/{run_id}/equity").json()["rows"]}
    assert kinds <= {"baseline", "ensemble"}


def _preview(client, name, steps, **environment):
    """Answer to the preview of an experiment with this environment."""
    body = {**EXPERIMENT, "environment": {**EXPERIMENT["environment"], **environment}}
    return client.post(f"/rl/lab/preview-{name}", json=body, params={"steps": steps}, headers=AUTHORIZED)


def _environment(home, **changes):
    """Environment of the experiment on its first training window, and the zero action."""
    content = {**EXPERIMENT, "environment": {**EXPERIMENT["environment"], **changes}}
    (plan,) = plan_variants(Store(home), ExperimentSpec.model_validate(content))
    first, last = plan.training_window(plan.folds[0])
    environment = PortfolioEnv(plan.panel, plan.spec.environment, first=first, last=last)
    return environment, np.zeros(environment.action_space.shape)


@pytest.mark.parametrize("action", ["simplex", "residual"])
def test_reward_preview_is_the_environment_stepped_by_hand(client, built_home, action):
    environment, zero = _environment(built_home, action={"kind": action})
    preview = _preview(client, "reward", 12, action={"kind": action}).json()
    assert len(preview["steps"]) == 12
    equity, t = 1.0, environment.simulation.accounts.t[0]
    for shown in preview["steps"]:
        session = str(environment.simulation.panel.sessions[environment.simulation.accounts.t[0]])
        _, reward, _, _, info = environment.step(zero)
        assert (shown["session"], shown["reward"]) == (session, reward)
        assert shown["reward_terms"] == info["reward_terms"]
        assert shown["reward"] == pytest.approx(sum(shown["reward_terms"].values()))
        assert (shown["cost"], shown["turnover"]) == (info["cost"], info["turnover"])
        assert shown["net_return"] == pytest.approx(info["equity"] / equity - 1.0)
        equity = info["equity"]
    assert environment.simulation.accounts.t[0] > t


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("lookback", ["returns", "features", "weights", "drawdown"]),
        ("regime", ["returns", "features", "slope", "regime", "weights", "drawdown"]),
        ("per_asset", ["names", "context"]),
    ],
)
def test_observation_preview_is_the_environment_stepped_by_hand(client, built_home, kind, parts):
    environment, zero = _environment(built_home, observation={"kind": kind})
    simulation, observations = environment.simulation, []
    for _ in range(5):
        observations.append(simulation.observe()[0])
        environment.step(zero)
    preview = _preview(client, "observation", 5, observation={"kind": kind}).json()
    assert preview["n_steps"] == 5
    assert [part["name"] for part in preview["parts"]] == parts
    at = 0
    for part in preview["parts"]:
        columns = np.array(observations)[:, at : (at := at + int(np.prod(part["shape"])))]
        assert part["n_not_finite"] == 0
        assert [part[name] for name in ("minimum", "mean", "maximum")] == pytest.approx(
            [columns.min(), columns.mean(dtype=float), columns.max()]
        )
        assert part["first"] == columns[0, :MAX_VALUES].tolist()
    assert at == simulation.builder.length


def test_regime_of_a_preview_is_one_of_its_number(client):
    preview = _preview(client, "observation", 5, observation={"kind": "regime", "n_regimes": 3}).json()
    (regime,) = [part for part in preview["parts"] if part["name"] == "regime"]
    assert (regime["shape"], sum(regime["first"])) == ([3], 1.0)


def test_values_of_an_observation_that_are_not_finite_are_counted():
    part = describe_part("x", np.array([[np.nan, 1.0], [3.0, np.inf]], dtype=np.float32))
    assert (part.n_not_finite, part.minimum, part.mean, part.maximum, part.first) == (2, 1.0, 2.0, 3.0, (None, 1.0))
    nothing = describe_part("x", np.full((1, 1), np.nan, dtype=np.float32))
    assert (nothing.minimum, nothing.mean, nothing.maximum) == (None, None, None)


def test_preview_ends_with_its_episode(client):
    assert len(_preview(client, "reward", 250).json()["steps"]) == EXPERIMENT["environment"]["episode_len"]


def test_preview_of_yaml_is_that_of_json(client):
    headers = {**AUTHORIZED, "content-type": "application/yaml"}
    of_yaml = client.post("/rl/lab/preview-reward", content=yaml.safe_dump(EXPERIMENT), headers=headers)
    assert of_yaml.json() == _preview(client, "reward", 20).json()


@pytest.mark.parametrize("name", ["reward", "observation"])
def test_preview_stores_nothing(client, built_home, name):
    before = Store(built_home).ledger.versions()
    body = {**EXPERIMENT, "name": "previewed"}
    assert client.post(f"/rl/lab/preview-{name}", json=body, headers=AUTHORIZED).status_code == 200
    assert Store(built_home).ledger.versions().equals(before)
    assert not (built_home.experiments / "previewed.yaml").exists()


@pytest.mark.parametrize(
    ("content", "steps", "status"),
    [
        (EXPERIMENT, 251, 422),
        (EXPERIMENT, 0, 422),
        ({**EXPERIMENT, "environment": {"lookback": 0}}, 5, 422),
        ({**EXPERIMENT, "market": {"source": "sample"}}, 5, 409),
        ({**EXPERIMENT, "splitter": {"kind": "holdout", "test_first": "2040-01-02"}}, 5, 409),
        ([], 5, 422),
    ],
)
def test_preview_that_is_not_possible_is_refused(client, content, steps, status):
    answer = client.post("/rl/lab/preview-reward", json=content, params={"steps": steps}, headers=AUTHORIZED)
    assert (answer.status_code, answer.json()["status"]) == (status, status)


def test_preview_needs_the_token(client):
    assert client.post("/rl/lab/preview-reward", json=EXPERIMENT).status_code == 401
