import datetime as dt
import json
import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.sharpe.inference import deflated_sharpe_ratio, sharpe_moments
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.tables import RETURNS
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight
from nvtrader_pipelines.policies.weights_table import WeightsTable
from nvtrader_pipelines.scoreboard.candidates import Candidate, Training, baseline_candidate, weights_candidate
from nvtrader_pipelines.scoreboard.entrants import BaselineEntrant, WeightsEntrant
from nvtrader_pipelines.scoreboard.harness import Meter, contenders, walked
from nvtrader_pipelines.scoreboard.judging import Luck, Market, judge, refusal, scorecards
from nvtrader_pipelines.scoreboard.scorecard import Scorecard, StressResult, attempt_of, markdown
from tests.markets import synthetic_panel

PANEL = synthetic_panel(320, 3)
AT = dt.datetime(2024, 1, 2, 22, tzinfo=dt.UTC)
LUCK = Luck(("run-1", "run-2"), np.array([0.02, -0.04]), 3)


def candidate(name, **weights):
    rows = pl.DataFrame({"date": PANEL.sessions[:1], **{symbol: [weight] for symbol, weight in weights.items()}})
    return weights_candidate(name, WeightsEntrant(), WeightsTable.from_frame(rows, sha256=name), PANEL, 1.0)


CANDIDATES = [
    baseline_candidate("equal_weight", BaselineEntrant()),
    baseline_candidate("buy_and_hold", BaselineEntrant(rule=BuyAndHold())),
    candidate("half", AAA=0.5),
    candidate("cash", AAA=0.0),
]
STRESS = {
    "half": (StressResult(scenario="unstressed", total_return=0.1), StressResult(scenario="gap", total_return=-0.1))
}


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
    interval = SharpeIntervals().draw(returns(walks, "half")[:, None]).interval(0)
    assert (metric.low, metric.high) == pytest.approx(interval, rel=1e-9)


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


def active_of(walks, name, best):
    active = returns(walks, name) - returns(walks, best)
    return active, active.mean() / active.std(ddof=1)


def test_an_entrant_from_outside_is_one_more_trial(walks):
    contest, (equal_weight, _, half, _) = walks
    found = scorecards(contest, [equal_weight, half], LUCK, {}, AT)[1].inference
    active, own = active_of(walks, "half", "equal_weight")
    assert found.n_trials == 4
    variance = np.var([0.02, -0.04, own], ddof=1)
    assert found.active_deflated_sharpe == pytest.approx(deflated_sharpe_ratio(sharpe_moments(active), 4, variance))


def test_every_attempt_from_outside_is_a_trial_of_all_others(walks, cards):
    best = cards["half"].inference.best_baseline
    (active, own), (_, cash) = active_of(walks, "half", best), active_of(walks, "cash", best)
    found = cards["half"].inference
    assert (found.n_trials, cards["cash"].inference.n_trials) == (5, 5)
    variance = np.var([0.02, -0.04, own, cash], ddof=1)
    assert found.active_deflated_sharpe == pytest.approx(deflated_sharpe_ratio(sharpe_moments(active), 5, variance))


def test_what_was_judged_before_counts_once_and_what_was_changed_since_counts_too(walks, cards):
    same, other = attempt_of(cards["half"].configuration), attempt_of({"sha256": "half, as it was yesterday"})
    contest, found = walks
    again = {card.entrant: card for card in scorecards(contest, found, LUCK.joined_by({same: 0.01}), {}, AT)}
    assert again["half"].inference == cards["half"].inference
    tuned = {card.entrant: card for card in scorecards(contest, found, LUCK.joined_by({other: None}), {}, AT)}
    assert tuned["half"].inference.n_trials == 6
    assert tuned["half"].inference.active_deflated_sharpe < cards["half"].inference.active_deflated_sharpe


def test_an_attempt_is_the_bytes_and_the_settings_whatever_the_file_is_called():
    configuration = {"kind": "weights", "sha256": "1", "description": "a", "file": "a.csv"}
    assert attempt_of(configuration) == attempt_of({**configuration, "description": "b", "file": "b.csv"})
    assert attempt_of(configuration) != attempt_of({**configuration, "sha256": "2"})


def test_a_run_is_one_of_the_trials(walks):
    contest, (equal_weight, _, half, _) = walks
    known = replace(half, candidate=replace(half.candidate, kind="run", run_id="run-2"))
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


def test_how_long_a_training_took_is_no_part_of_the_digest(cards):
    for card in cards.values():
        assert card.model_copy(update={"training_seconds": 12.5}).digest == card.digest


def test_what_was_found_is_part_of_the_digest(walks, cards):
    contest, found = walks
    other = scorecards(contest, found, replace(LUCK, n_trials=30), STRESS, AT)
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
        f"{card.metric('sharpe').value:.2f} [",
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


def test_who_cannot_be_opened_does_not_shorten_the_window_of_the_others():
    def broken(panel, window):
        raise ValueError("it is broken")

    def learned(name, last, opened):
        trained = (Training(PANEL.sessions[0].item(), PANEL.sessions[last].item()),)
        return Candidate(name, "sb3", MarketChoice(), 5, {"name": name}, opened, trained)

    early = learned("early", 20, lambda *_: EqualWeight().start())
    everybody = [early, learned("late", 40, broken), learned("worse", 60, broken), CANDIDATES[0]]
    market = Market(PANEL, {each.name: PANEL for each in everybody}, pl.DataFrame(schema=RETURNS), lambda _: LUCK)
    meter = Meter(time.perf_counter, lambda: 1)
    found = {card.entrant: card for card in judge(everybody, market, meter, AT, lambda _: None)}
    assert found["early"].contest.first_session == PANEL.sessions[21].item()
    assert (found["early"].refusal, found["equal_weight"].refusal) == ("", "")
    assert (found["late"].refusal, found["worse"].refusal) == ("it is broken", "it is broken")
    assert found["late"].contest == found["early"].contest
