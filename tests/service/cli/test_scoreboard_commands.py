import json

import pytest

from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT
from tests.homes import small_home
from tests.service.cli.error_lines import is_one_line_error


def test_a_run_leaves_a_scoreboard_of_the_experiment_and_its_baselines(invoke):
    rows = json.loads(invoke("scoreboard", "--json").stdout)
    assert {row["entrant"] for row in rows} == {"tiny", "equal_weight", "buy_and_hold", "minimum_variance", "mean_cvar"}
    assert sorted(row["rank"] for row in rows) == [1, 2, 3, 4, 5]
    assert len({row["contest"] for row in rows}) == 1
    assert [row["sharpe"] for row in rows] == sorted((row["sharpe"] for row in rows), reverse=True)


def test_the_scoreboard_is_a_table_of_the_contest_for_a_person(invoke):
    found = invoke("scoreboard").stdout
    assert found.startswith("landing, ")
    for text in ("net Sharpe [95 %]", "information ratio [95 %]", "deflated", "tiny", "minimum_variance", "sessions)"):
        assert text in found


def test_the_history_of_an_entrant_is_every_judgement_of_it(invoke):
    rows = json.loads(invoke("scoreboard", "--history", "tiny", "--json").stdout)
    assert {row["entrant"] for row in rows} == {"tiny"}
    assert "tiny: every judgement" in invoke("scoreboard", "--history", "tiny").stdout


def test_what_looks_like_markup_is_shown_as_it_is(tmp_path, command):
    home = small_home(tmp_path / "home")
    home.entrants.mkdir(parents=True, exist_ok=True)
    (home.entrants / "odd[b].yaml").write_text("kind: weights")
    (home.entrants / "even.yaml").write_text("kind: run\nrun: '[/b]'")
    assert command(home)("scoreboard", "update").exit_code == 0
    odd, even = (command(home)("scoreboard", "--history", name) for name in ("odd[b]", "even"))
    assert (odd.exit_code, even.exit_code) == (0, 0)
    assert "odd[b]: every judgement" in odd.stdout
    assert "[/b]" in even.stdout


def test_a_history_of_nobody_asks_who_was_meant(invoke):
    found = invoke("scoreboard", "--history", "tinny")
    assert found.exit_code == BAD_INPUT
    assert is_one_line_error(found.stderr)
    assert "did you mean 'tiny'" in found.stderr


@pytest.mark.parametrize("arguments", [("scoreboard",), ("scoreboard", "--json"), ("scoreboard", "--history", "tiny")])
def test_before_anybody_was_judged_the_command_says_what_to_run(tmp_path, command, arguments):
    found = command(small_home(tmp_path / "home"))(*arguments)
    assert found.exit_code == BAD_INPUT
    assert is_one_line_error(found.stderr)
    assert "`nvtrader materialize`" in found.stderr
