from dataclasses import replace
from datetime import timedelta

import pytest

from nvtrader_pipelines.evaluation.stress import Gap
from nvtrader_pipelines.evaluation.stress.suite import StressTest
from nvtrader_pipelines.experiments.entrant_specs import BaselineEntrantSpec
from nvtrader_pipelines.policies.baselines import EqualWeight, Momentum
from nvtrader_pipelines.scoreboard.entrant_stress import stress_results
from nvtrader_pipelines.scoreboard.entrants import baseline_entrant
from nvtrader_pipelines.scoreboard.scorecard import Contest
from tests.evaluation.stress.markets import BEFORE, FIRST, WINDOW, day, random_walks

pytestmark = pytest.mark.slow

PRICES = random_walks()
ROWS = PRICES.rows()
STRESS = StressTest(scenarios=(Gap(),), window_sessions=WINDOW, history_sessions=BEFORE)
CONTEST = Contest(
    source="synthetic",
    panel_digest="0" * 64,
    first_session=day(PRICES, FIRST),
    last_session=day(PRICES, -1),
    n_sessions=WINDOW,
    fill="next_open",
    costs=(),
    gross_limit=1.0,
)


def results(*entrants, contest=CONTEST):
    found = stress_results(contest, entrants, ROWS, lambda _: None, {}, STRESS)
    return {name: {each.scenario: each for each in worlds} for name, worlds in found.items()}


def rule(name, rule=None):
    return baseline_entrant(name, BaselineEntrantSpec(rule=rule or EqualWeight()))


def test_history_grows_with_the_lookback_of_a_rule():
    momentum = rule("momentum", Momentum(months=14))
    assert momentum.lookback == 14 * 21 + 1
    found = results(momentum, rule("equal_weight"))
    assert all(each.over_equal_weight for each in found["momentum"].values())
    assert [each.over_equal_weight for each in found["equal_weight"].values()] == [0.0, 0.0]


def test_equal_weight_is_identified_by_rule_not_by_name():
    plain, called = results(rule("momentum", Momentum())), results(rule("equal_weight", Momentum()))
    differences = [each.over_equal_weight for each in called["equal_weight"].values()]
    assert differences == [each.over_equal_weight for each in plain["momentum"].values()]
    assert 0.0 not in differences


class Afraid:
    """Policy that fails after a crash."""

    def decide(self, panel, t, account):
        if panel.close_returns[t].max() < -0.1:
            raise ValueError("it fell")
        return EqualWeight().start().decide(panel, t, account)


def test_entrant_failing_in_one_scenario_keeps_the_others():
    afraid = replace(rule("afraid"), rebal_freq=1, open=lambda *_: Afraid())
    found = results(afraid)["afraid"]
    assert found["unstressed"].total_return == pytest.approx(
        results(rule("equal_weight"))["equal_weight"]["unstressed"].total_return, rel=0.05
    )
    assert (found["gap_20_percent"].total_return, found["gap_20_percent"].note) == (None, "it fell")


def test_window_without_scenario_gives_one_note():
    late = CONTEST.model_copy(update={"last_session": CONTEST.last_session + timedelta(days=30)})
    (only,) = results(rule("equal_weight"), contest=late)["equal_weight"].values()
    assert only.scenario == "none"
    assert "2017-05-22 to 2017-11-10" in only.note


def test_stress_test_that_was_made_is_not_made_again():
    stored, lines = {}, []
    first = stress_results(CONTEST, [rule("a")], ROWS, lines.append, stored, STRESS)
    again = stress_results(CONTEST, [rule("a"), rule("b")], ROWS, lines.append, stored, STRESS)
    assert again["a"] == first["a"]
    assert [line.partition(":")[0] for line in lines] == ["a", "b"]
    longer = rule("c", Momentum(months=60))
    stress_results(CONTEST, [rule("a"), longer], ROWS, lines.append, stored, STRESS)
    assert [line.partition(":")[0] for line in lines[2:]] == ["a", "c"]  # since both see a longer history
