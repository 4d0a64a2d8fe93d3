"""Tools of assistants: in memory, over stdio and HTTP; their answers, refusals, permissions and record."""

import json

import anyio
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from nvtrader_pipelines.components.document import rows_of
from nvtrader_pipelines.service.api import launches
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.runs import Runs
from nvtrader_pipelines.service.tools.registry import INDEX, TOOLS
from nvtrader_pipelines.service.tools.toolbox import READING, Toolbox, open_server, permissions_of
from nvtrader_pipelines.storage.errors import ConflictError, NotFoundError, StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RETURNS, TRAJECTORIES
from nvtrader_pipelines.storage.views import queries
from scripts.index_commands import index_tools
from tests.homes import NVTRADER, copy_home, environment
from tests.service.api.conftest import AUTHORIZED, TOKEN, client_of, waiting  # noqa: F401 - a fixture
from tests.service.api.servers import served

pytestmark = pytest.mark.slow
READS = sorted(name for name, tool in TOOLS.items() if not tool.needs)
OTHERS = sorted(TOOLS.keys() - set(READS))
EVERYTHING = permissions_of(allow_writes=True, allow_trading=True)
INVOKE = "/mcp/data/tools/{}/invoke"


def toolbox_of(home, permissions=READING):
    """Tools on a home, called by ann."""
    return Toolbox(OpenHome(Store(home), "ann", is_quiet=True, is_served=True), permissions)


@pytest.fixture
def trading(waiting, tmp_path):  # noqa: F811
    """Tools that may do anything, on a copied home whose account has a plan that waits."""
    return toolbox_of(copy_home(waiting, tmp_path / "home"), EVERYTHING)


def run_id(home):
    """Id of the run of a built home."""
    return Store(home).ledger.runs()["run_id"][0]


def test_index_of_tools_is_what_they_declare():
    assert INDEX.read_text() == index_tools()


def test_client_lists_and_calls_every_reading_tool(waiting):  # noqa: F811
    run, plan = run_id(waiting), toolbox_of(waiting).call("data.brokers.plans", {})["rows"][0]["plan"]
    arguments = {
        "data.rl.describe": {"rl_run_id": run},
        "data.backtests.describe": {"run": run},
        "data.brokers.plan": {"plan": plan},
        "data.iceberg.read_snapshot": {"table": "gold.returns"},
        "data.sql": {"query": "SELECT count(*) AS n FROM gold.returns"},
        "data.corpora.search": {"query": "drawdown"},
    }

    async def call_all():
        async with Client(open_server(toolbox_of(waiting))) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            # the client validates each answer by the schema that was listed
            return tools, {name: await client.call_tool(name, arguments.get(name, {})) for name in tools}

    tools, answers = anyio.run(call_all)
    assert sorted(tools) == READS
    assert all(tool.annotations.read_only_hint and tool.output_schema for tool in tools.values())
    errors = {name for name, answer in answers.items() if answer.is_error}
    assert errors == {"data.rl.search_journal"}  # the home has no search
    contents = {name: answer.structured_content for name, answer in answers.items() if name not in errors}
    assert all(json.loads(answers[name].content[0].text) == content for name, content in contents.items())
    assert [row["run_id"] for row in contents["data.rl.list"]["rows"]] == [run]
    assert contents["data.brokers.accounts"]["result"][0]["account"] == "paper"
    assert contents["data.sql"]["rows"] == [{"n": len(Store(waiting).tables.read(RETURNS))}]


def test_described_run_is_that_of_the_ledger(built_home):
    store = Store(built_home)
    run = store.ledger.run(run_id(built_home))
    rewards = store.tables.read(TRAJECTORIES, {"run_id": [run.run_id], "kind": ["ensemble"]}, ["reward"])["reward"]
    described = toolbox_of(built_home).call("data.rl.describe", {"rl_run_id": "tiny"})
    assert described.pop("mean_reward") == pytest.approx(rewards.mean())
    assert described == {
        "rl_run_id": run.run_id,
        "status": "done",
        "total_timesteps": 3072,
        "spec_version_id": run.partition_key,
        "spec_hash": run.spec_hash,
        "parent_run_id": None,
        "mlflow_run_id": run.mlflow_run_id,
        "trajectory_namespace": "rl",
        "message": run.message,
    }
    shown = toolbox_of(built_home).call("data.rl.list", {})["rows"]
    expected = rows_of(Runs(OpenHome(store, "ann")).list.operation.row, Runs(OpenHome(store, "ann")).list())
    assert shown == [json.loads(row.model_dump_json()) for row in expected]


def test_rows_of_a_snapshot_meet_the_conditions(built_home):
    store, toolbox = Store(built_home), toolbox_of(built_home)
    whole = store.tables.read(TRAJECTORIES)
    run, first = run_id(built_home), whole["session"].min()
    where = [
        {"column": "run_id", "value": run},
        {"column": "kind", "op": "in", "value": ["ensemble"]},
        {"column": "session", "op": "gt", "value": first.isoformat()},
        {"column": "reward", "op": "is_not_null"},
    ]
    snapshot = store.tables.snapshot_id(TRAJECTORIES)
    read = {"table": "rl.trajectories", "snapshot_id": snapshot, "where": where}
    answer = toolbox.call("data.iceberg.read_snapshot", {**read, "limit": 1000})
    expected = whole.filter((whole["run_id"] == run) & (whole["kind"] == "ensemble") & (whole["session"] > first))
    assert [row["reward"] for row in answer["rows"]] == expected["reward"].head(1000).to_list()
    few = toolbox.call("data.iceberg.read_snapshot", {**read, "limit": 2})
    assert (len(few["rows"]), few["has_more"], answer["has_more"]) == (2, True, len(expected) > 1000)


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("data.rl.nothing", {}, NotFoundError),
        ("data.rl.describe", {"rl_run_id": "none"}, NotFoundError),
        ("data.rl.describe", {"run_id": "tiny"}, StorageError),
        ("data.rl.list", {"everythng": True}, StorageError),
        ("data.backtests.describe", {"run": "tiny", "output": "/tmp/x"}, StorageError),
        ("data.brokers.orders", {"account": "none"}, NotFoundError),
        ("data.brokers.orders", {"limit": 1001}, StorageError),
        ("data.iceberg.read_snapshot", {"table": "gold.nothing"}, NotFoundError),
        ("data.iceberg.read_snapshot", {"table": "gold.returns", "snapshot_id": 1}, StorageError),
        ("data.iceberg.read_snapshot", {"table": "gold.returns", "where": "1 = 1"}, StorageError),
        ("data.iceberg.read_snapshot", {"table": "gold.returns", "where": [{"column": "x"}]}, ValueError),
        ("data.iceberg.read_snapshot", {"table": "gold.returns", "where": [{"column": "x", "sql": "1"}]}, StorageError),
        (
            "data.iceberg.read_snapshot",
            {"table": "gold.returns", "where": [{"column": "session", "value": "1 OR 1"}]},
            ValueError,
        ),
        ("data.sql", {"query": "COPY (SELECT 1) TO 'stolen.csv'"}, StorageError),
        ("data.sql", {"query": "EXPLAIN COPY (SELECT 1) TO 'stolen.csv'"}, StorageError),
        ("data.sql", {"query": "DROP VIEW gold.returns"}, StorageError),
        ("data.sql", {"query": "SELECT 'infinity'::date"}, StorageError),
        ("data.sql", {"query": "SELECT interval 1 day"}, StorageError),
        (
            "data.iceberg.read_snapshot",
            {"table": "gold.returns", "where": [{"column": "year", "value": 1099511627776}]},
            ValueError,
        ),
        ("data.sql", {"query": "FROM read_text('/etc/hostname')"}, StorageError),
    ],
)
def test_bad_input_is_refused(built_home, tmp_path, monkeypatch, name, arguments, error):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as refused:
        toolbox_of(built_home).call(name, arguments)
    assert "; " in str(refused.value) or "allow" in str(refused.value) or "found" in str(refused.value)
    assert [*tmp_path.iterdir()] == []


def test_refusal_reaches_the_client_as_a_sentence(built_home):
    async def call():
        async with Client(open_server(toolbox_of(built_home))) as client:
            return [await client.call_tool("data.rl.list", {"frob": 1}), await client.call_tool("data.rl.train", {})]

    unknown, forbidden = anyio.run(call)
    assert (unknown.is_error, forbidden.is_error) == (True, True)
    assert "frob" in unknown.content[0].text
    assert "--allow-writes" in forbidden.content[0].text


@pytest.mark.parametrize("name", OTHERS)
def test_tool_that_writes_or_trades_needs_its_switch_and_a_released_kill_switch(built_home, monkeypatch, name):
    without = toolbox_of(built_home, EVERYTHING - TOOLS[name].needs)
    assert name not in without.tools
    with pytest.raises(ConflictError):
        without.call(name, {})
    allowed = toolbox_of(built_home, EVERYTHING)
    assert name in allowed.tools
    monkeypatch.setenv("NVTRADER_KILL_SWITCH", "1")
    assert sorted(allowed.tools) == READS
    with pytest.raises(ConflictError):
        allowed.call(name, {"plan": "none", "decision": {"kind": "approve"}} if "decide" in name else {})
    assert [event for event in allowed.opened.store.audit.events() if event.kind == "called"] == []


def test_decision_by_a_tool_places_orders_and_is_recorded_with_its_name(trading):
    (plan,) = trading.call("data.brokers.plans", {"waiting": True})["rows"]
    decision = {"plan": plan["plan"], "decision": {"kind": "approve", "reason": "as agreed"}}
    event = trading.call("data.brokers.decide", decision)
    assert (event["kind"], event["by"]) == ("approved", "ann by data.brokers.decide")
    (called,) = [event for event in trading.opened.store.audit.events() if event.kind == "called"]
    assert (called.by, called.detail) == (event["by"], {"tool": "data.brokers.decide", "arguments": decision})


def test_halt_holds_where_the_audit_is_damaged(trading):
    home = trading.opened.store.home
    log = next(home.audit.glob("*.jsonl"))
    log.write_text(log.read_text() + "{broken\n")
    with pytest.raises(StorageError):
        trading.call("data.brokers.halt", {"reason": "prices look wrong"})
    assert trading.opened.store.switch.halt_reason() is not None


def test_query_that_takes_too_long_is_interrupted(built_home, monkeypatch):
    monkeypatch.setattr(queries, "MAX_SECONDS", 0.2)
    query = "SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"
    with pytest.raises(StorageError, match=r"within 0\.2 seconds"):
        toolbox_of(built_home).call("data.sql", {"query": query})
    assert toolbox_of(built_home).call("data.sql", {"query": "SELECT 'ab'::blob AS b"})["rows"] == [{"b": "6162"}]


def test_writing_tools_launch_annotate_and_are_recorded(trading, monkeypatch):
    monkeypatch.setattr(launches, "launch", lambda *_, **__: "task")
    run = run_id(trading.opened.store.home)
    launched = trading.call("data.rl.replay", {"run": run, "last": "2017-06-30"})
    noted = trading.call("data.rl.annotate", {"run": run, "tags": "agreed"})
    with pytest.raises(StorageError):
        trading.call("data.rl.search", {"settings": {"budget": 0}})
    assert (launched["task_id"], noted["tags"]) == ("task", "agreed")
    events = [event for event in trading.opened.store.audit.events() if event.kind == "called"]
    assert [(event.by, event.detail["tool"]) for event in events] == [
        ("ann by data.rl.replay", "data.rl.replay"),
        ("ann by data.rl.annotate", "data.rl.annotate"),
    ]


def test_assistant_starts_the_command_and_calls_tools_over_stdio(built_home):
    parameters = StdioServerParameters(command=str(NVTRADER), args=["mcp"], env=environment(built_home))

    async def call():
        async with Client(parameters) as client:
            tools = (await client.list_tools()).tools
            return tools, await client.call_tool("data.rl.describe", {"rl_run_id": "tiny"})

    tools, answer = anyio.run(call)
    assert sorted(tool.name for tool in tools) == READS
    assert answer.structured_content == toolbox_of(built_home).call("data.rl.describe", {"rl_run_id": "tiny"})


def test_service_answers_the_protocol_and_the_invoke_route_with_a_token(built_home, fast_nvtrader):
    expected, body = toolbox_of(built_home).call("data.rl.describe", {"rl_run_id": "tiny"}), {"rl_run_id": "tiny"}

    async def call(url):
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            async with Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
                tools, answer = await client.list_tools(), await client.call_tool("data.rl.describe", body)
            invoked = await http.post(f"{url}{INVOKE.format('data.rl.describe')}", json=body)
        return tools.tools, answer.structured_content, invoked.json()

    with served(built_home, command=fast_nvtrader) as (_, url, _):
        tools, answer, invoked = anyio.run(call, url)
    assert sorted(tool.name for tool in tools) == READS
    assert answer == invoked == expected


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer other"}], ids=["missing", "wrong"])
@pytest.mark.parametrize("path", ["/mcp", INVOKE.format("data.rl.list")])
def test_tools_without_the_token_are_401(client, path, headers):
    assert client.post(path, json={}, headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [
        ("data.rl.nothing", {}, 404),
        ("data.rl.list", {"frob": 1}, 422),
        ("data.rl.train", {}, 409),
        ("data.brokers.halt", {}, 409),
    ],
)
def test_invoke_route_refuses_with_the_status_of_its_error(client, name, arguments, status):
    assert client.post(INVOKE.format(name), json=arguments, headers=AUTHORIZED).status_code == status


@pytest.fixture(scope="module")
def client(built_home):
    """Client of the service of the built home."""
    return client_of(built_home)
