import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster_duckdb import DuckDBResource

from nvtrader_pipelines.desk.account_checks import ACCOUNT_CHECKS
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.orchestration.assets.active_policy import ACTIVE_POLICY_KEY
from nvtrader_pipelines.orchestration.assets.portfolio import ORDERS_KEY, STATE_KEY
from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.reports import asset_key
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.tables import (
    ALPHAS,
    AUDIT,
    DELIVERIES,
    DPO_CHECKS,
    DPO_EPOCHS,
    FILLS,
    LLM_CALLS,
    ORDER_BOOKS,
    PROMOTION_DECISIONS,
    REFUSED_DECISIONS,
    RESEARCH_SESSIONS,
    RUNS,
    SERIES,
    TABLES,
)

CHECKOUT = Path(__file__).resolve().parents[2]
COMMITTED = Path(__file__).with_name("definitions.txt")
BIN = Path(sys.executable).parent
NO_TABLES = {  # rows of the ledger, files, and a row of a table that sessions outside Dagster write, too
    "policies/experiment_version",
    "policies/trained_policy",
    "policies/dpo_policy",
    "research/autoresearch_session",
}
WRITTEN_BESIDE = {  # by bronze.bars, evaluation, orders, active policy, searches, decisions, alphas, landed books
    table.name
    for table in (
        *(DELIVERIES, RUNS, FILLS, AUDIT, PROMOTION_DECISIONS, RESEARCH_SESSIONS, REFUSED_DECISIONS),
        *(SERIES, ORDER_BOOKS, DPO_EPOCHS, DPO_CHECKS, LLM_CALLS, ALPHAS),
    )
}


@pytest.fixture(scope="module")
def defs(tmp_path_factory):
    return build_defs(home=Home(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="module")
def specs(defs) -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


def listed(defs: dg.Definitions) -> str:
    checks = [
        f"check {key.asset_key.to_user_string()}:{key.name}" for key in defs.resolve_asset_graph().asset_check_keys
    ]
    assets = [f"asset {spec.key.to_user_string()}" for spec in defs.resolve_all_asset_specs()]
    jobs = [f"job {job.name}" for job in defs.jobs or []]
    schedules = [
        f"schedule {each.name}: {each.cron_schedule} {each.execution_timezone}" for each in defs.schedules or []
    ]
    sensors = [f"sensor {each.name}" for each in defs.sensors or []]
    return "\n".join([*sorted(assets), *sorted(checks), *sorted(jobs), *sorted(schedules), *sorted(sensors)]) + "\n"


def test_graph_equals_the_committed_definitions(defs):
    assert listed(defs) == COMMITTED.read_text()


def test_definitions_load_and_resolve(defs):
    dg.Definitions.validate_loadable(defs)


def test_every_asset_has_description_owner_and_kinds(specs):
    for name, spec in specs.items():
        assert spec.group_name, name
        assert spec.kinds, name
        assert spec.owners, name
        assert spec.description, name
        assert spec.code_version, name


def test_every_table_is_an_asset_with_documented_columns(specs):
    tables = {table.name.replace(".", "/"): table for table in TABLES if table.name not in WRITTEN_BESIDE}
    assert set(tables) == set(specs) - NO_TABLES
    for name, table in tables.items():
        schema = specs[name].metadata["dagster/column_schema"]
        assert isinstance(schema, dg.TableSchema)
        assert [column.name for column in schema.columns] == table.schema.names()
        assert all(column.description for column in schema.columns), name
        assert specs[name].metadata["dagster/table_name"] == table.name


def test_market_is_partitioned_by_year_and_the_rest_by_experiment(specs):
    by_kind = {name: type(spec.partitions_def) for name, spec in specs.items()}
    years = {name for name, kind in by_kind.items() if kind is dg.TimeWindowPartitionsDefinition}
    whole = {name for name, kind in by_kind.items() if kind is type(None)}
    experiments = {name for name, kind in by_kind.items() if kind is dg.DynamicPartitionsDefinition}
    assert years == {"bronze/bars", "silver/clean_bars", "silver/quarantine", "gold/returns", "gold/features"}
    judgement = ("validation", "overfitting", "sharpe_ratio_curve", "prudex", "scorecards", "scoreboard")
    portfolio = ("active_policy", "orders", "portfolio_state", "target_weights", "rebalance_plan")
    assert whole == {
        "gold/market_panel",
        "gold/regimes",
        *(f"evaluation/{name}" for name in (*judgement, "world_results")),
        *(f"portfolio/{name}" for name in portfolio),
        *(f"research/{name}" for name in ("autoresearch_session", "documents", "trials")),
        *(f"preferences/{name}" for name in ("decisions", "outcomes")),
    }
    assert experiments == set(specs) - years - whole


def test_checks_of_required_identities_block(defs):
    warnings_only = {"calendar_has_no_gaps", "every_file_has_a_good_bar", "history_has_one_basis"}
    warnings_only |= {"pairs_differ", "pairs_are_balanced", "labels_are_recent"}
    warnings_only |= {"candidate_is_more_than_luck", "choice_is_not_overfitted", "no_refused_decisions"}
    graph = defs.resolve_asset_graph()
    blocking = {key.name: graph.get(key).blocking for key in graph.asset_check_keys}
    assert {name for name, blocks in blocking.items() if not blocks} == warnings_only


def test_every_job_resolves_and_has_a_layer_tag(defs):
    for job in defs.jobs or []:
        resolved = defs.resolve_job_def(job.name)
        assert resolved.description
        assert resolved.run_tags["nvtrader/layer"]


def test_all_but_the_weekly_search_run_by_default_in_new_york_time(defs):
    stopped = [each.name for each in defs.schedules or [] if each.default_status is dg.DefaultScheduleStatus.STOPPED]
    assert stopped == ["weekly_autoresearch"]
    assert all(each.execution_timezone == NEW_YORK.time_zone.key for each in defs.schedules or [])
    assert all(each.default_status is dg.DefaultSensorStatus.RUNNING for each in defs.sensors or [])


def test_every_job_schedule_and_sensor_has_a_description(defs):
    for each in [*(defs.jobs or []), *(defs.schedules or []), *(defs.sensors or [])]:
        assert each.description, each.name


def test_training_has_its_own_pool(defs):
    graph = defs.resolve_asset_graph()
    assert graph.get(dg.AssetKey(["policies", "trained_policy"])).pools == {"training"}


def test_steps_of_an_account_share_a_pool_of_one(defs):
    graph = defs.resolve_asset_graph()
    moving = dg.AssetSelection.groups("portfolio").resolve(graph) - {ACTIVE_POLICY_KEY}
    assert {pool for key in moving for pool in graph.get(key).pools} == {"account"}
    assert all(graph.get(key).pools for key in moving)


def test_account_checks_equal_the_checks_of_its_assets(defs):
    graph = defs.resolve_asset_graph()
    traded = dg.AssetSelection.groups("portfolio").resolve(graph) - {ACTIVE_POLICY_KEY}
    of_rows = {dg.AssetCheckKey(asset_key(each.table), each.name) for each in ACCOUNT_CHECKS}
    of_all = dg.AssetCheckKey(ORDERS_KEY, "audit_is_whole")
    of_desk = dg.AssetCheckKey(STATE_KEY, "reconciliation")  # which the desk itself holds the account by
    checks = {key for key in graph.asset_check_keys if key.asset_key in traded}
    assert checks == {*of_rows, of_all, of_desk}
    assert all(graph.get(key).blocking for key in checks)


def test_build_defs_replaces_a_resource(tmp_path):
    other = DuckDBResource(database=str(tmp_path / "other.duckdb"))
    defs = build_defs({"duckdb": other}, Home(tmp_path))
    assert (defs.resources or {})["duckdb"] is other
    assert (defs.resources or {})["store"].root == str(tmp_path)


def test_build_defs_finds_the_home_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("NVTRADER_HOME", str(tmp_path))
    assert (build_defs().resources or {})["store"].root == str(tmp_path)


@pytest.mark.nightly
@pytest.mark.slow
def test_location_loads_from_another_folder(tmp_path):
    command = BIN / "dg", "check", "defs", "--target-path", str(CHECKOUT)
    environment = {**os.environ, "NVTRADER_HOME": str(tmp_path), "DAGSTER_HOME": str(tmp_path)}
    finished = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
