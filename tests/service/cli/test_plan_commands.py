import datetime as dt
import json
from collections import Counter

import pytest

from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, USAGE
from nvtrader_pipelines.storage.store import Store
from tests.service.cli.error_lines import is_one_line_error
from tests.service.cli.sample_plans import (
    ABOVE_CAP,
    AT,
    FEW_NAMES,
    SESSION,
    TURNOVER,
    append_plan,
    plan,
    write_book,
    write_tests,
)

LATER = SESSION + dt.timedelta(days=7)


@pytest.fixture
def invoke(home, command):
    return command(home)


def test_plans_of_empty_home_show_next_command(invoke):
    assert invoke("plans").stdout == "no plan yet: nvtrader trade\n"
    assert json.loads(invoke("plans", "--json").stdout) == []


def test_plans_are_listed_newest_first_with_findings_by_level(home, invoke):
    append_plan(home, plan(), TURNOVER, FEW_NAMES)
    append_plan(home, plan(LATER), ABOVE_CAP)
    append_plan(home, plan(account="other"))
    rows = json.loads(invoke("plans", "--account", "paper", "--json").stdout)
    assert [(row["session"], row["status"]) for row in rows] == [(str(LATER), "blocked"), (str(SESSION), "waiting")]
    assert [[row[level] for level in ("hard", "soft", "warn")] for row in rows] == [[1, 0, 0], [0, 1, 1]]
    assert rows[0]["turnover"] == 0.5
    assert len(json.loads(invoke("plans", "list", "-f", "json").stdout)) == 3
    assert plan().plan_id in invoke("plans").stdout


def halt_sessions(home, *days, account="paper", reason="news"):
    events = [
        AuditEvent(
            event_id=event_id("halted", account, day),
            kind="halted",
            at=AT,
            by="desk",
            account=account,
            session=SESSION + dt.timedelta(days=day),
            reason=reason,
        )
        for day in days
    ]
    Store(home).audit.append(events)


def test_waiting_plans_come_first_and_alone_with_the_option(home, invoke):
    waits = append_plan(home, plan(), TURNOVER)
    blocked = append_plan(home, plan(LATER), ABOVE_CAP)
    halt_sessions(home, 9)
    rows = [line.split()[0] for line in invoke("plans").stdout.splitlines()[1:3]]
    assert rows == [waits.plan_id, blocked.plan_id]
    assert [row["plan"] for row in json.loads(invoke("plans", "--waiting", "--json").stdout)] == [waits.plan_id]
    assert invoke("plans", "list", "--waiting", "--account", "paper").stdout.count(waits.plan_id) == 1


def test_plans_of_which_none_waits_are_not_listed_with_waiting(home, invoke):
    append_plan(home, plan(), ABOVE_CAP)
    assert invoke("plans", "--waiting").stdout == "no plan waits for you\n"


def test_halted_sessions_between_two_plans_are_one_range(home, invoke):
    append_plan(home, plan(LATER))
    halt_sessions(home, 1, 2, 3, 8)
    halt_sessions(home, 9, reason="a drill")
    halt_sessions(home, 1, account="other")
    lines = [line for line in invoke("plans", env={"COLUMNS": "60"}).stdout.splitlines() if "halted" in line]
    assert lines == [
        "2024-01-11: 1 session of paper without a decision, halted: a drill",
        "2024-01-10: 1 session of paper without a decision, halted: news",
        "2024-01-03 to 2024-01-05: 3 sessions of paper without a decision, halted: news",
        "2024-01-03: 1 session of other without a decision, halted: news",
    ]
    assert len(json.loads(invoke("plans", "--json").stdout)) == 7


def test_show_prints_findings_orders_stages_and_weights(home, invoke):
    write_book(home, 1.0)
    stored_plan = append_plan(home, plan(), FEW_NAMES, TURNOVER)
    shown = invoke("plans", "show", stored_plan.plan_id[:5]).stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert f"plan {stored_plan.plan_id}" in lines
    assert "status waiting" in lines
    findings = lines.index("rule level symbol figure bound")
    assert lines[findings + 1 : findings + 3] == ["turnover_pct_warn soft 0.75 0.2", "min_diversification warn 2 4"]
    assert f"turnover_pct_warn: {TURNOVER.sentence}" in lines
    orders = lines.index("name before after change order")
    assert lines[orders + 1 : orders + 4] == [
        "AAA 0 25 25 250,000",
        "BBB 0 25 25 250,000",
        "cash 100 50 -50 -500,000",
    ]
    stages = lines.index("stage up down change")
    assert lines[stages + 1 : stages + 4] == [
        "policy 2 0 0.75",
        "static_universe 0 0 0",
        "position_cap 0 1 0.25",
    ]
    assert "position_cap: AAA cut to 25.0%" in lines
    weights = lines.index("name held policy position_cap")  # stages without a change have no column
    assert lines[weights + 1 : weights + 4] == ["AAA 0 50 25", "BBB 0 25 25", "cash 100 25 50"]


def test_show_json_holds_plan_status_and_findings(home, invoke):
    stored_plan = append_plan(home, plan(), ABOVE_CAP)
    document = json.loads(invoke("plans", "show", stored_plan.plan_id, "--json").stdout)
    assert stored_plan.model_dump(mode="json").items() <= document.items()
    assert document["status"] == "blocked"
    assert document["findings"] == [ABOVE_CAP.model_dump(mode="json")]
    assert ([order["amount"] for order in document["orders"]], document["record"]) == ([None] * 4, None)


def test_edited_weight_that_a_limit_cut_is_shown_with_the_limit(home, invoke):
    edited = append_plan(home, plan().model_copy(update={"parent_id": "0" * 16}), TURNOVER)
    (cut,) = json.loads(invoke("plans", "show", edited.plan_id, "--json").stdout)["cuts"]
    assert cut == {"symbol": "AAA", "edited": 0.5, "target": 0.25, "limits": ["position_cap"]} | {
        "sentence": "AAA of 50.0% became 25.0% by position_cap"
    }
    lines = [" ".join(line.split()) for line in invoke("plans", "show", edited.plan_id).stdout.splitlines()]
    assert "AAA 50 25 position_cap" in lines


@pytest.mark.slow
def test_show_prints_the_parent_and_the_record(home, invoke):
    parent = plan()
    edited = append_plan(home, plan(LATER).model_copy(update={"parent_id": parent.plan_id}), TURNOVER)
    write_tests(Store(home), [SESSION, LATER], {"tiny": [0.1, 0.1], "mean_cvar": [0.0, 0.02]})
    lines = [" ".join(line.split()) for line in invoke("plans", "show", edited.plan_id).stdout.splitlines()]
    assert f"edited from plan {parent.plan_id} by desk" in lines
    record = lines.index("month policy baseline")
    assert "mean_cvar" in lines[record - 1]
    assert lines[record + 1 : record + 4] == ["2024-01 21 2", "total 21 2", "Sharpe ratio"]


@pytest.mark.parametrize(
    "arguments", [("show",), ("approve",), ("override", "--reason", "x"), ("reject", "--reason", "x")]
)
def test_unknown_plan_exits_with_3(home, invoke, arguments):
    append_plan(home, plan())
    found = invoke("plans", arguments[0], "zz", *arguments[1:])
    assert found.exit_code == BAD_INPUT
    assert "no plan's id begins with 'zz'" in found.stderr
    assert is_one_line_error(found.stderr)


def test_ambiguous_plan_id_exits_with_3(home, invoke):
    ids = [append_plan(home, plan(SESSION + dt.timedelta(days=n))).plan_id for n in range(20)]
    ((first, n_ids),) = Counter(plan_id[0] for plan_id in ids).most_common(1)
    found = invoke("plans", "show", first)
    assert found.exit_code == BAD_INPUT
    assert f"{n_ids} plans begin with '{first}'" in found.stderr


@pytest.mark.parametrize("decision", ["override", "reject"])
def test_refusing_a_plan_without_reason_exits_with_2(home, invoke, decision):
    assert invoke("plans", decision, append_plan(home, plan()).plan_id).exit_code == USAGE


@pytest.mark.parametrize(
    ("weights", "named"),
    [
        (["AAA"], "'AAA'"),
        (["AAA=x"], "'AAA=x'"),
        (["AAA=0.1", "AAA=0.2"], "AAA has two"),
        (["--weights", "none.yaml"], "none.yaml"),
        (["--weights", "numbers.yaml"], "`True: 0.1`"),
        (["--weights", "empty.yaml"], "at least one weight"),
        (["--weights", "numbers.yaml", "AAA=0.1"], "in both"),
    ],
)
def test_weights_that_are_no_pairs_exit_with_3(home, invoke, weights, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers.yaml").write_text("ON: 0.1\n")
    (tmp_path / "empty.yaml").write_text("{}\n")
    refused = invoke("plans", "override", append_plan(home, plan()).plan_id, *weights, "--reason", "too much")
    assert refused.exit_code == BAD_INPUT
    assert is_one_line_error(refused.stderr)
    assert named in refused.stderr
