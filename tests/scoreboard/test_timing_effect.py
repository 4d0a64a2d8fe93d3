import dataclasses
import re
import time

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.statistics import max_drawdown, sharpe_ratio
from nvtrader_pipelines.scoreboard.contest_backtest import Meter, admit_entrants, run_contest_backtest
from nvtrader_pipelines.scoreboard.entrants import UntimedTwin
from nvtrader_pipelines.scoreboard.scorecard import Scorecard
from nvtrader_pipelines.scoreboard.scorecard_page import markdown
from nvtrader_pipelines.scoreboard.scoring import score_runs
from nvtrader_pipelines.scoreboard.timing_effect import timing_effect
from tests.scoreboard.test_scoring import AT, ENTRANTS, PANEL, TRIALS

pytestmark = pytest.mark.slow

TIMING = UntimedTwin("regime_guard", lambda *_: pytest.fail("it has run already"))


def twinned(run, net_return, n_acted=3):
    """Contest run with an untimed twin of other returns."""
    entrant = dataclasses.replace(run.entrant, untimed_twin=TIMING)
    twin = run.curves.with_columns(net_return=pl.Series(net_return))
    return dataclasses.replace(run, entrant=entrant, untimed_curves=twin, n_acted=n_acted)


@pytest.fixture(scope="module")
def runs():
    found = admit_entrants(PANEL, ENTRANTS, {each.name: PANEL for each in ENTRANTS})
    meter = Meter(time.perf_counter, lambda: 1 << 20)
    return found.contest, [run_contest_backtest(each, PANEL, found.contest, meter) for each in found.admitted]


@pytest.fixture
def half(runs):
    return next(each for each in runs[1] if each.entrant.name == "half")


def test_timing_effect_is_a_paired_difference_of_two_accounts(half):
    own = half.curves["net_return"].to_numpy()
    other = own + np.random.default_rng(1).normal(0.0, 0.002, len(own))
    found = timing_effect(twinned(half, other))
    assert (found.sharpe, found.sharpe_without) == (sharpe_ratio(own, 252), sharpe_ratio(other, 252))
    assert (found.max_drawdown, found.max_drawdown_without) == (max_drawdown(own), max_drawdown(other))
    assert found.sharpe_difference.value == pytest.approx(sharpe_ratio(own, 252) - sharpe_ratio(other, 252))
    drawn = SharpeIntervals().draw(np.column_stack([own, other]), 252)
    assert (found.sharpe_difference.low, found.sharpe_difference.high) == drawn.difference(0, 1)
    assert (found.n_acted, found.n_decisions) == (3, len(half.actions))
    assert found.turnover_per_year == pytest.approx(252 * half.curves["turnover"].mean())


@pytest.mark.parametrize(
    ("less", "n_acted", "finding"),
    [
        (0.002, 9, "regime_guard timing helps: .* above 0"),
        (-0.002, 9, "regime_guard timing hurts: .* below 0"),
        (0.0, 9, "no proven effect: .* contains 0"),
        (0.0, 0, "never acted"),
    ],
)
def test_finding_depends_on_the_interval(half, less, n_acted, finding):
    other = half.curves["net_return"].to_numpy() - less
    found = timing_effect(twinned(half, other, n_acted))
    assert re.search(finding, found.finding)


def test_timing_effect_is_shown_and_leaves_the_score_unchanged(runs, half):
    contest, every_run = runs
    other = half.curves["net_return"].to_numpy() - 0.002
    timed = [twinned(each, other) if each is half else each for each in every_run]
    plain, cards = score_runs(contest, every_run, TRIALS, {}, AT), score_runs(contest, timed, TRIALS, {}, AT)
    card = next(each for each in cards if each.entrant == "half")
    page = markdown(card)
    assert "## Timing" in page
    assert "| | with regime_guard | without |" in page
    assert f"| Sharpe ratio | {card.timing.sharpe:.4g} | {card.timing.sharpe_without:.4g} |" in page
    assert f"it changed 3 of {len(half.actions)} decisions. {card.timing.finding}" in page
    assert Scorecard.model_validate_json(card.as_json) == card
    without = next(each for each in plain if each.entrant == "half")
    assert card.model_copy(update={"timing": None, "measured": without.measured}) == without
    for one, same in zip(plain, cards, strict=True):
        assert one.row() | {"document": "", "digest": "", "judgement": ""} == same.row() | {
            "document": "",
            "digest": "",
            "judgement": "",
        }


def test_card_of_entrant_without_timing_omits_it(runs):
    for card in score_runs(*runs, TRIALS, {}, AT):
        assert card.timing is None
        assert '"timing"' not in card.as_json
        assert "## Timing" not in markdown(card)
