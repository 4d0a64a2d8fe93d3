import datetime as dt
import json

import pytest

from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, USAGE
from nvtrader_pipelines.storage.home import Home
from tests.service.cli.error_lines import is_one_line_error
from tests.service.cli.sample_plans import FEW, SESSION, TOO_MUCH, TURNOVER, keep, plan

LATER = SESSION + dt.timedelta(days=7)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


@pytest.fixture
def invoke(home, command):
    return command(home)


def test_without_a_plan_the_list_says_what_to_do(invoke):
    assert invoke("plans").stdout == "no plan yet: nvtrader trade\n"
    assert json.loads(invoke("plans", "--json").stdout) == []


def test_the_plans_of_an_account_that_is_not_there_are_refused(invoke):
    found = invoke("plans", "--account", "nope")
    assert found.exit_code == BAD_INPUT
    assert "there is no account 'nope'" in found.stderr
    assert is_one_line_error(found.stderr)


def test_plans_are_listed_newest_first_with_their_findings_by_level(home, invoke):
    keep(home, plan(), TURNOVER, FEW)
    keep(home, plan(LATER), TOO_MUCH)
    keep(home, plan(account="other"))
    rows = json.loads(invoke("plans", "--account", "paper", "--json").stdout)
    assert [(row["session"], row["status"]) for row in rows] == [(str(LATER), "blocked"), (str(SESSION), "waiting")]
    assert [[row[level] for level in ("hard", "soft", "warn")] for row in rows] == [[1, 0, 0], [0, 1, 1]]
    assert rows[0]["turnover"] == 0.5
    assert len(json.loads(invoke("plans", "list", "-f", "json").stdout)) == 3
    assert plan().plan_id in invoke("plans").stdout


def test_a_plan_is_shown_with_figure_and_bound_and_what_each_stage_changed(home, invoke):
    kept = keep(home, plan(), FEW, TURNOVER)
    shown = invoke("plans", "show", kept.plan_id[:5]).stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert f"plan {kept.plan_id}" in lines
    assert "status waiting" in lines
    findings = lines.index("level rule symbol figure bound sentence")
    assert lines[findings + 1].startswith("soft turnover_pct_warn 0.75 0.2 75 % is turned over")
    assert lines[findings + 2].startswith("warn min_diversification 2 4 2 names")
    stages = lines.index("stage up down change why")
    assert lines[stages + 1 : stages + 4] == [
        "policy 2 0 0.75",
        "static_universe 0 0 0",
        "position_cap 0 1 0.25 AAA cut to 25.0%",
    ]
    weights = lines.index("name held policy position_cap")  # a stage that changed nothing has no column
    assert lines[weights + 1 : weights + 4] == ["AAA 0 50 25", "BBB 0 25 25", "cash 100 25 50"]


def test_a_plan_as_json_is_the_whole_plan_with_what_became_of_it(home, invoke):
    kept = keep(home, plan(), TOO_MUCH)
    document = json.loads(invoke("plans", "show", kept.plan_id, "--json").stdout)
    assert kept.model_dump(mode="json").items() <= document.items()
    assert document["status"] == "blocked"
    assert document["findings"] == [TOO_MUCH.model_dump(mode="json")]


@pytest.mark.parametrize(
    "answer", [("show",), ("approve",), ("override", "--reason", "x"), ("reject", "--reason", "x")]
)
def test_a_plan_that_is_not_there_is_told_in_one_sentence(home, invoke, answer):
    keep(home, plan())
    found = invoke("plans", answer[0], "zz", *answer[1:])
    assert found.exit_code == BAD_INPUT
    assert "no plan's id begins with 'zz'" in found.stderr
    assert is_one_line_error(found.stderr)


def test_an_id_that_is_too_short_to_name_one_plan_is_refused(home, invoke):
    for n in range(20):
        keep(home, plan(SESSION + dt.timedelta(days=n)))
    found = invoke("plans", "show", "")
    assert found.exit_code == BAD_INPUT
    assert "20 plans begin with ''" in found.stderr


@pytest.mark.parametrize("answer", ["override", "reject"])
def test_who_refuses_a_plan_must_say_why(home, invoke, answer):
    assert invoke("plans", answer, keep(home, plan()).plan_id).exit_code == USAGE
