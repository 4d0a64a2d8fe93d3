import datetime as dt
import json
import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.sharpe_inference import deflated_sharpe_ratio, sharpe_moments
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.experiments.candidates import baseline_candidate, weights_candidate
from nvtrader_pipelines.experiments.entrants import BaselineEntrant, WeightsEntrant
from nvtrader_pipelines.experiments.harness import Meter, contenders, walked
from nvtrader_pipelines.experiments.judgement import Luck, refusal, scorecards
from nvtrader_pipelines.experiments.scorecard import Scorecard, StressResult, markdown
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.policies.baselines import BuyAndHold
from nvtrader_pipelines.policies.weights_table import WeightsTable
from tests.markets import synthetic_panel

PANEL = synthetic_panel(320, 3)
AT = dt.datetime(2024, 1, 2, 22, tzinfo=dt.UTC)
LUCK = Luck(("run-1", "run-2"), np.array([0.02, -0.04]), 3)


def candidate(name, **weights):
    rows = pl.DataFrame({"date": PANEL.sessions[:1], **{symbol: [weight] for symbol, weight in weights.items()}})
    return weights_candidate(name, WeightsEntrant(), WeightsTable.of(rows), PANEL, 1.0)


CANDIDATES = [
    baseline_candidate("equal_weight", BaselineEntrant()),
    baseline_candidate("buy_and_hold", BaselineEntrant(rule=BuyAndHold())),
    candidate("half", AAA=0.5),
    candidate("cash", AAA=0.0),
]
STRESS = {"half": (StressResult(scenario="calm", total_return=0.1), StressResult(scenario="gap", total_return=-0.1))}


@pytest.fixture(scope="module")
def walks():
    found = contenders(PANEL, CANDIDATES, {each.name: PANEL for each in CANDIDATES})
    meter = Meter(time.perf_counter, lambda: 1 << 20)
    return found.contest, [walked(each, PANEL, found.contest, meter) for each in found.admitted]


@pytest.fixture(scope="module")
def cards(walks):
    return {card.entrant: card for card in scorecards(*walks, LUCK, STRESS, AT)}


def returns(walks, name):
    return next(each.curves["net_return"].to_numpy() for each in walks[1] if each.candidate.name == name)


def test_the_headline_is_the_net_sharpe_ratio_with_its_interval(walks, cards):
    metric = cards["half"].metric("sharpe")
    assert metric.value == sharpe_ratio(returns(walks, "half"))
    assert metric.low < metric.value < metric.high


def test_the_active_figures_are_over_the_best_baseline_of_the_contest(walks, cards):
    sharpes = {name: sharpe_ratio(returns(walks, name)) for name in ("equal_weight", "buy_and_hold")}
    best = max(sharpes, key=sharpes.__getitem__)
    found = cards["half"].inference
    active = returns(walks, "half") - returns(walks, best)
    assert found.best_baseline == best
    assert found.active_sharpe.value == sharpe_ratio(active)
    assert cards["half"].metric("sharpe_difference").value == pytest.approx(
        sharpe_ratio(returns(walks, "half")) - sharpes[best]
    )


def test_an_entrant_from_outside_is_one_more_trial(walks, cards):
    found = cards["half"].inference
    active = returns(walks, "half") - returns(walks, found.best_baseline)
    own = active.mean() / active.std(ddof=1)
    assert found.n_trials == 4
    variance = np.var([0.02, -0.04, own], ddof=1)
    assert found.active_deflated_sharpe == pytest.approx(deflated_sharpe_ratio(sharpe_moments(active), 4, variance))


def test_a_run_is_one_of_the_trials(walks):
    contest, (equal_weight, _, half, _) = walks
    known = replace(half, candidate=replace(half.candidate, run_id="run-2"))
    cards = scorecards(contest, [equal_weight, known], LUCK, {}, AT)
    assert cards[1].inference.n_trials == 3


def test_a_baseline_has_no_active_figures_and_says_why(cards):
    found = cards["equal_weight"].inference
    assert (found.active_sharpe.value, found.active_deflated_sharpe) == (None, None)
    assert found.note == "a baseline itself"


def test_an_account_in_cash_has_a_score_of_zero_and_no_probability(cards):
    card = cards["cash"]
    assert card.metric("sharpe").value == 0.0
    assert card.inference.probabilistic_sharpe is None
    assert "returns that vary" in card.inference.note
    assert card.row()["sharpe"] == 0.0


def test_without_a_baseline_the_card_says_what_is_missing(walks):
    contest, (*_, half, _) = walks
    (card,) = scorecards(contest, [half], LUCK, {}, AT)
    assert card.inference.note == "no baseline in the contest to compare with"


def test_the_same_content_has_the_same_digest_whenever_and_however_fast_it_was_judged(walks, cards):
    contest, found = walks
    slower = [replace(each, seconds=each.seconds + 9.0, peak_memory=7) for each in found]
    again = {card.entrant: card for card in scorecards(contest, slower, LUCK, STRESS, AT + dt.timedelta(days=1))}
    assert {name: card.digest for name, card in again.items()} == {name: card.digest for name, card in cards.items()}
    assert again["half"].row()["judgement"] != cards["half"].row()["judgement"]


def test_what_was_found_is_part_of_the_digest(walks, cards):
    contest, found = walks
    other = scorecards(contest, found, replace(LUCK, n_ever=30), STRESS, AT)
    assert {card.entrant for card in other if card.digest != cards[card.entrant].digest} == {"half", "cash"}


def test_a_card_survives_json_as_itself(cards):
    for card in cards.values():
        assert Scorecard.model_validate_json(card.as_json) == card
        assert json.loads(card.as_json)["contest"]["gross_limit"] == 1.0


def test_the_row_names_the_worst_world(cards):
    assert (cards["half"].row()["worst_scenario"], cards["half"].row()["worst_scenario_return"]) == ("gap", -0.1)
    assert cards["cash"].row()["worst_scenario"] is None


def test_the_page_tells_what_the_document_holds(cards):
    page = markdown(cards["half"])
    card = cards["half"]
    assert page.startswith("# Scorecard: half\n")
    for text in (
        card.contest.digest,
        "costs proportional (bps 10)",
        f"{card.metric('sharpe').value:.4g} [",
        "| gap | -10.00% |",
        "how many others were tried before this one was chosen is not known here",
        "decision to weights, median",
        '"kind": "weights"',
    ):
        assert text in page


def test_a_refused_entrant_has_a_card_with_the_reason_and_no_figures(walks):
    card = refusal("late", "it has seen everything", AT, CANDIDATES[2], walks[0])
    assert card.metrics == {}
    assert card.row()["note"] == "it has seen everything"
    assert card.row()["contest"] == walks[0].digest
    assert "**Not judged**: it has seen everything" in markdown(card)


def test_names_that_an_entrant_may_not_hold_count_as_none(walks):
    contest, found = walks
    fewer = synthetic_panel(320, 2)
    alone = replace(CANDIDATES[0], name="two names", market=MarketChoice(symbols=("AAA", "BBB")))
    narrow = walked(alone, fewer, contest, Meter(time.perf_counter, lambda: 1))
    cards = scorecards(contest, [*found, narrow], LUCK, {}, AT)
    assert cards[-1].data.n_symbols == 2
    assert cards[-1].metric("effective_names").value == pytest.approx(2.0, rel=1e-3)
