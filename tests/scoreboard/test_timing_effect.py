import dataclasses
import re
import time

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.statistics import max_drawdown, sharpe_ratio
from nvtrader_pipelines.scoreboard.candidates import Untimed
from nvtrader_pipelines.scoreboard.harness import Meter, contenders, walked
from nvtrader_pipelines.scoreboard.judging import scorecards
from nvtrader_pipelines.scoreboard.scorecard import Scorecard, markdown
from nvtrader_pipelines.scoreboard.timing_effect import timing_effect
from tests.scoreboard.test_judging import AT, CANDIDATES, LUCK, PANEL

TIMING = Untimed("regime_guard", lambda *_: pytest.fail("it was walked already"))


def twinned(walk, net_return, n_acted=3):
    """What an entrant did, beside a twin that earned something else."""
    candidate = dataclasses.replace(walk.candidate, untimed=TIMING)
    twin = walk.curves.with_columns(net_return=pl.Series(net_return))
    return dataclasses.replace(walk, candidate=candidate, untimed=twin, n_acted=n_acted)


@pytest.fixture(scope="module")
def walks():
    found = contenders(PANEL, CANDIDATES, {each.name: PANEL for each in CANDIDATES})
    meter = Meter(time.perf_counter, lambda: 1 << 20)
    return found.contest, [walked(each, PANEL, found.contest, meter) for each in found.admitted]


@pytest.fixture
def half(walks):
    return next(each for each in walks[1] if each.candidate.name == "half")


def test_the_effect_is_the_difference_of_two_accounts_on_the_same_sessions_with_a_paired_interval(half):
    own = half.curves["net_return"].to_numpy()
    other = own + np.random.default_rng(1).normal(0.0, 0.002, len(own))
    found = timing_effect(twinned(half, other))
    assert (found.sharpe, found.sharpe_without) == (sharpe_ratio(own), sharpe_ratio(other))
    assert (found.max_drawdown, found.max_drawdown_without) == (max_drawdown(own), max_drawdown(other))
    assert found.sharpe_difference.value == pytest.approx(sharpe_ratio(own) - sharpe_ratio(other))
    drawn = SharpeIntervals().draw(np.column_stack([own, other]))
    assert (found.sharpe_difference.low, found.sharpe_difference.high) == drawn.difference(0, 1)
    assert (found.n_acted, found.n_decisions) == (3, len(half.actions))
    assert found.turnover_per_year == pytest.approx(252 * half.curves["turnover"].mean())


@pytest.mark.parametrize(
    ("less", "n_acted", "finding"),
    [
        (0.002, 9, r"The regime_guard timing helps: the 95 % interval of the difference, .* lies above 0\."),
        (-0.002, 9, r"The regime_guard timing does harm: .* lies below 0\."),
        (0.0, 9, r"The regime_guard timing does not show that it helps: .* holds 0\."),
        (0.0, 0, r"The regime_guard timing never acted in this window, so it says nothing of whether it helps\."),
    ],
)
def test_a_sentence_says_whether_the_timing_helps(half, less, n_acted, finding):
    other = half.curves["net_return"].to_numpy() - less
    found = timing_effect(twinned(half, other, n_acted))
    assert re.fullmatch(finding, found.finding), found.finding


def test_the_card_shows_both_accounts_and_the_finding_and_ranks_as_without(walks, half):
    contest, all_walks = walks
    other = half.curves["net_return"].to_numpy() - 0.002
    timed = [twinned(each, other) if each is half else each for each in all_walks]
    plain, cards = scorecards(contest, all_walks, LUCK, {}, AT), scorecards(contest, timed, LUCK, {}, AT)
    card = next(each for each in cards if each.entrant == "half")
    page = markdown(card)
    assert "## Timing" in page
    assert "| | with regime_guard | without |" in page
    assert f"| Sharpe ratio | {card.timing.sharpe:.4g} | {card.timing.sharpe_without:.4g} |" in page
    assert f"it acted in 3 of {len(half.actions)} decisions. {card.timing.finding}" in page
    assert Scorecard.model_validate_json(card.as_json) == card
    without = next(each for each in plain if each.entrant == "half")
    assert card.model_copy(update={"timing": None, "measured": without.measured}) == without
    for one, same in zip(plain, cards, strict=True):
        assert one.row() | {"document": "", "digest": "", "judgement": ""} == same.row() | {
            "document": "",
            "digest": "",
            "judgement": "",
        }


def test_a_card_without_timing_says_nothing_of_it(walks):
    for card in scorecards(*walks, LUCK, {}, AT):
        assert card.timing is None
        assert '"timing"' not in card.as_json
        assert "## Timing" not in markdown(card)
