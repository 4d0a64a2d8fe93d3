"""Use cases from Python, the command line and the routes: one document, and one effect."""

import getpass
import inspect
import json

import pytest

from nvtrader_pipelines import Approve, Override, Pipeline, Reject, Skip
from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.execution.decisions import EDITED
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.storage.store import Store
from tests.homes import copy_home
from tests.service.api.conftest import client_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(built_home, tmp_path_factory):
    """Home whose account has a plan that waits, of a policy that Python activated."""
    home = copy_home(built_home, tmp_path_factory.mktemp("doors") / "home")
    policies = Pipeline(home.root).policies
    decision = policies.activate(policies.list().policies[0].policy, reason="a test")
    assert (decision.activated, decision.by, decision.reason) == (True, getpass.getuser(), "a test")
    drain(Desk(Store(home), by="ann").trade(until_waiting=True))
    return home


def test_documents_are_equal_at_every_door(home, command):
    pipeline, invoke, client = Pipeline(home.root), command(home), client_of(home)
    (plan,) = pipeline.plans.list(waiting=True)["plan"]
    policy = pipeline.policies.list().policies[0].policy
    asked = {
        ("experiments", "show", "tiny"): (pipeline.experiments.show("tiny"), "/api/experiments/tiny"),
        ("policies", "list"): (pipeline.policies.list(), "/api/nemorl/policies"),
        ("policies", "show", policy): (pipeline.policies.show(policy), f"/api/policies/{policy}"),
        ("plans", "show", plan[:8]): (pipeline.plans.show(plan[:8]), f"/api/plans/{plan[:8]}"),
        ("runs", "show", "tiny"): (pipeline.runs.show("tiny"), "/rl/runs/tiny"),
        ("portfolio",): (pipeline.accounts.show(), "/api/portfolio"),
    }
    for words, (document, route) in asked.items():
        printed = json.loads(invoke(*words, "--json").stdout)
        assert printed == document.model_dump(mode="json"), words
        assert route is None or client.get(route).json() == printed, words
    lists = {
        "plans": (pipeline.plans.list(), "plan", "/api/plans"),
        "runs": (pipeline.runs.list(), "run_id", "/rl/runs"),
        "scoreboard": (pipeline.scoreboard.show(), "entrant", "/api/scoreboard"),
    }
    for name, (rows, key, route) in lists.items():
        printed = json.loads(invoke(name, "--json").stdout)
        assert [row[key] for row in printed] == rows[key].to_list() != [], name
        assert client.get(route).json() == printed, name


def test_decisions_from_python_are_recorded_and_published(home, tmp_path):
    pipeline = Pipeline(copy_home(home, tmp_path / "home").root)
    (plan,) = pipeline.plans.list(waiting=True)["plan"]
    symbol = pipeline.plans.show(plan).symbols[0]
    skipped = pipeline.plans.decide(plan[:8], Skip(reason="later"))
    edited = pipeline.plans.decide(plan, Override(reason="less", weights={symbol: 0.05})).detail[EDITED]
    with pytest.raises(ExecutionError, match="decided on once"):
        pipeline.plans.decide(plan, Reject(reason="no"))
    pipeline.plans.decide(edited, Approve())
    assert (skipped.kind, skipped.by, skipped.reason) == ("skipped", getpass.getuser(), "later")
    emptied = pipeline.accounts.reset(reason="another capital")
    assert (emptied.kind, pipeline.accounts.show().session) == ("reset", None)
    rows = pipeline.sql(
        "SELECT kind FROM portfolio.audit WHERE kind IN ('skipped', 'overridden', 'approved', 'reset') ORDER BY line"
    )
    assert rows["kind"].to_list() == ["skipped", "overridden", "approved", "reset"]


def test_method_of_a_family_has_the_signature_and_the_docstring_of_its_function(home):
    decide = Pipeline(home.root).plans.decide
    assert list(inspect.signature(decide).parameters) == ["plan", "decision"]
    assert decide.__doc__.startswith("Approve, override, reject or skip a plan")
