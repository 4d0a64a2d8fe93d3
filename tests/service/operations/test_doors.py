"""Use cases from Python, the command line and the routes: one document, and one effect."""

import getpass
import inspect
import json
from typing import Annotated

import pytest
import typer
from pydantic import Field
from starlette.testclient import TestClient
from typer.testing import CliRunner

from nvtrader_pipelines import Approve, Override, Pipeline, Reject, Skip
from nvtrader_pipelines.components.document import Document, rows_of
from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.execution.decisions import EDITED
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.service.api.access import Access
from nvtrader_pipelines.service.api.answers import JSON
from nvtrader_pipelines.service.api.app import create_app
from nvtrader_pipelines.service.api.mount import operation_routes
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT
from nvtrader_pipelines.service.cli.family_commands import family_app, words_of
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.operation import Family, operation, operations_of
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.store import Store
from scripts.reference import OPERATIONS, use_cases
from tests.homes import copy_home
from tests.service.api.conftest import AUTHORIZED, TOKEN, client_of
from tests.service.cli.test_help import COMMANDS

pytestmark = pytest.mark.slow
CLOCKS = {"status"}  # operations whose documents hold the time, or ages of it
REFUSED = [  # one for each type of error
    ("/api/plans/none/decision", {"kind": "skip"}, 404),
    ("/api/policies/activate", {"policy": "none"}, 404),
    ("/api/portfolio/reset", {"reason": "a test", "account": "none"}, 404),
    ("/api/searches/stop", {}, 404),
    ("/api/experiments/train", {"source": "none"}, 409),
    ("/api/experiments/apps", {"app": "crypto"}, 409),
    ("/api/portfolio/accept-differences", {"reason": "none differ"}, 409),
    ("/api/policies/activate", {"policy": ""}, 422),
    ("/api/searches/start", {"budget": 0}, 422),
]


@pytest.fixture(scope="module")
def home(built_home, tmp_path_factory):
    """Home whose account has a plan that waits, of a policy that Python activated."""
    home = copy_home(built_home, tmp_path_factory.mktemp("doors") / "home")
    policies = Pipeline(home.root).policies
    decision = policies.activate(policies.list().policies[0].policy, reason="a test")
    assert (decision.activated, decision.by, decision.reason) == (True, getpass.getuser(), "a test")
    drain(Desk(Store(home), by="ann").trade(until_waiting=True))
    add_bot(home)
    return home


def add_bot(home):
    """Write a bot on an account of its own, which nobody has started."""
    for folder, text in ((home.accounts, "kind: simulated"), (home.bots, "policy: active\naccount: robo")):
        folder.mkdir(exist_ok=True)
        (folder / "robo.yaml").write_text(text)


def label(entry):
    """Words of the command of an operation."""
    return " ".join(entry[2])


def of_pipeline(pipeline, family):
    """Operations of a family in Python."""
    return pipeline if isinstance(pipeline, family) else getattr(pipeline, family.__name__.lower())


@pytest.fixture(scope="module")
def client(home):
    """Client of the home."""
    return client_of(home)


@pytest.fixture(scope="module")
def names(home):
    """Names of things that parameters of routes name."""
    pipeline = Pipeline(home.root)
    policy, plan = pipeline.policies.list().policies[0].policy, pipeline.plans.list(waiting=True)["plan"][0]
    named = {"run": "tiny", "experiment": "tiny", "session_id": "none", "bot": "robo", "world": "sell-order"}
    return {**named, "policy": policy, "plan": plan}


@pytest.mark.parametrize("entry", OPERATIONS, ids=label)
def test_operation_is_a_method_and_a_command_with_its_text(home, entry):
    family, name, words, one = entry
    shown = COMMANDS[tuple(words)]
    assert inspect.cleandoc(shown.help).partition("\n")[0] == one.text.partition("\n")[0]
    assert [line.strip() for line in shown.epilog.splitlines() if line.startswith("  nvtrader ")] == [*one.examples]
    assert callable(getattr(of_pipeline(Pipeline(home.root), family), name))
    assert one.returns is not None
    assert {each.name for each in one.parameters if not each.description} <= {"decision", "settings"}  # with own fields


@pytest.mark.parametrize("entry", [entry for entry in OPERATIONS if entry[3].route.startswith("GET")], ids=label)
def test_document_is_equal_at_every_door(home, client, names, command, entry):
    family, name, words, one = entry
    path = one.route.removeprefix("GET ").replace(":path", "")
    arguments = {name: value for name, value in names.items() if f"{{{name}}}" in path}
    query = {"query": "drawdown"} if name == "search" else {}
    answer = client.get(path.format(**arguments), params=query)
    arguments |= query
    printed = command(home)(*words, *arguments.values(), *([] if name == "schema" else ["--json"]))  # JSON in any case
    try:
        document = one.call(of_pipeline(Pipeline(home.root), family), arguments)
    except NotFoundError:
        assert (answer.status_code, printed.exit_code) == (404, BAD_INPUT)
        return
    rows = rows_of(one.row, document) if one.is_frame else document
    if document is None:
        assert (answer.json(), printed.exit_code) == (None, BAD_INPUT)
    elif name not in CLOCKS:
        assert json.loads(printed.stdout) == answer.json() == JSON.dump_python(rows, mode="json")


@pytest.mark.parametrize("entry", [entry for entry in OPERATIONS if entry[3].route.startswith("POST")], ids=label)
def test_write_needs_the_token_and_a_valid_body(client, entry):
    path = entry[3].route.removeprefix("POST ").replace("{plan}", "none")
    assert client.post(path).status_code == 401
    expected = 404 if "{workflow}" in path or "{world}" in path else 422  # it has no body
    assert client.post(path, json={"frob": 1}, headers=AUTHORIZED).status_code == expected


@pytest.mark.parametrize("entry", [entry for entry in OPERATIONS if entry[3].parameters], ids=label)
def test_method_refuses_arguments_of_other_types(home, entry):
    family, _, _, one = entry
    arguments = {parameter.name: (object(),) if parameter.is_several else object() for parameter in one.parameters}
    with pytest.raises(StorageError):
        one.call(of_pipeline(Pipeline(home.root), family), arguments)


@pytest.mark.parametrize(
    "call",
    [
        lambda pipeline: pipeline.runs.windows("tiny", sessions=1),
        lambda pipeline: pipeline.searches.start({"budget": 0}),
        lambda pipeline: pipeline.experiments.run(),
    ],
    ids=["bound", "bound of settings", "none of several"],
)
def test_method_refuses_what_command_and_route_refuse(home, call):
    with pytest.raises(StorageError):
        call(Pipeline(home.root))


@pytest.mark.parametrize(("path", "body", "status"), REFUSED)
def test_refused_write_has_the_status_of_its_error(client, path, body, status):
    assert client.post(path, json=body, headers=AUTHORIZED).status_code == status


class Greeting(Document):
    """Greeting of a person."""

    text: str


class Greetings(Family):
    """Greetings: what one says at the start."""

    command, examples = "greetings", ("nvtrader greetings say ann",)

    @operation("nvtrader greetings say ann", route="GET /api/greetings/{person}")
    def say(self, person: Annotated[str, Field(max_length=9, description="Who is greeted.")]) -> "Greeting":
        """Greet a person."""
        return Greeting(text=f"good morning, {person}, {self.opened.by} says")


def test_new_use_case_is_one_function_and_its_document(home, monkeypatch):
    monkeypatch.setenv("NVTRADER_HOME", str(home.root))
    said = Greetings(OpenHome.find()).say("ann")
    root = typer.Typer()
    root.add_typer(family_app(Greetings))
    printed = CliRunner().invoke(root, ["greetings", "say", "ann", "--json"])
    app = create_app(Store(home), Access("127.0.0.1", 8000, TOKEN), getpass.getuser())
    app.include_router(operation_routes(Greetings))
    answer = TestClient(app).get("/api/greetings/ann")
    assert json.loads(printed.stdout) == answer.json() == said.model_dump()
    one = operations_of(Greetings)["say"]
    row = "`nvtrader greetings say` | `pipeline.greetings.say` | `GET /api/greetings/{person}` |  |"
    assert row in use_cases([(Greetings, "say", words_of(Greetings, "say", one), one)])


def test_decisions_from_python_are_recorded_and_published(home, tmp_path):
    pipeline = Pipeline(copy_home(home, tmp_path / "home").root)
    (plan,) = pipeline.plans.list(waiting=True)["plan"]
    symbol = pipeline.plans.show(plan).symbols[0]
    skipped = pipeline.plans.decide(plan[:8], Skip(reason="later"))
    edited = pipeline.plans.decide(plan, Override(reason="less", weights={symbol: 0.05})).detail[EDITED]
    with pytest.raises(ExecutionError):
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
