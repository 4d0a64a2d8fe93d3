import datetime as dt
import json
import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.alpha import residual_returns
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.sharpe.deflation import deflated_sharpe_ratio
from nvtrader_pipelines.evaluation.sharpe.inference import (
    sharpe_moments,
)
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.evaluation.trials import sharpe_ratios
from nvtrader_pipelines.experiments.entrant_specs import BaselineEntrantSpec, WeightsEntrantSpec
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.market.tables import RETURNS
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight
from nvtrader_pipelines.policies.weights_table import WeightsTable
from nvtrader_pipelines.scoreboard.contest_backtest import Meter, admit_entrants, run_contest_backtest
from nvtrader_pipelines.scoreboard.entrants import Entrant, TrainingSpan, baseline_entrant, weights_entrant
from nvtrader_pipelines.scoreboard.scorecard import Scorecard, StressResult, attempt_id
from nvtrader_pipelines.scoreboard.scorecard_page import markdown
from nvtrader_pipelines.scoreboard.scoring import (
    SourceMarket,
    TrialPopulation,
    refusal_card,
    score_entrants,
    score_runs,
)
from tests.markets import synthetic_panel

pytestmark = pytest.mark.slow

PANEL = synthetic_panel(320, 3)
AT = dt.datetime(2024, 1, 2, 22, tzinfo=dt.UTC)
TRIALS = TrialPopulation(("run-1", "run-2"), np.array([0.02, -0.04]), np.ones(2), 3, 3.0)


def entrant(name, panel=PANEL, **weights):
    rows = pl.DataFrame({"date": panel.sessions[:1], **{symbol: [weight] for symbol, weight in weights.items()}})
    return weights_entrant(name, WeightsEntrantSpec(), WeightsTable.from_frame(rows, sha256=name), panel, 1.0)


ENTRANTS = [
    baseline_entrant("equal_weight", BaselineEntrantSpec()),
    baseline_entrant("buy_and_hold", BaselineEntrantSpec(rule=BuyAndHold())),
    entrant("half", AAA=0.5),
    entrant("cash", AAA=0.0),
]
STRESS = {
    "half": (StressResult(scenario="unstressed", total_return=0.1), StressResult(scenario="gap", total_return=-0.1))
}


@pytest.fixture(scope="module")
def runs():
    found = admit_entrants(PANEL, ENTRANTS, {each.name: PANEL for each in ENTRANTS})
    meter = Meter(time.perf_counter, lambda: 1 << 20)
    return found.contest, [run_contest_backtest(each, PANEL, found.contest, meter) for each in found.admitted]


@pytest.fixture(scope="module")
def cards(runs):
    return {card.entrant: card for card in score_runs(*runs, TRIALS, STRESS, AT)}


def returns(runs, name):
    return next(each.curves["net_return"].to_numpy() for each in runs[1] if each.entrant.name == name)


def test_card_has_net_sharpe_ratio_with_interval(runs, cards):
    metric = cards["half"].metric("sharpe")
    assert metric.value == sharpe_ratio(returns(runs, "half"), 252)
    assert metric.low < metric.value < metric.high
    interval = SharpeIntervals().draw(returns(runs, "half")[:, None], 252).interval(0)
    assert (metric.low, metric.high) == pytest.approx(interval, rel=1e-9)


def test_contest_on_market_without_closing_is_annualized_by_365_sessions():
    calendar = TradingCalendar("24/7")
    days = calendar.sessions(dt.date(2020, 1, 1), dt.date(2020, 11, 15))
    panel = replace(PANEL, sessions=days, calendar=calendar)
    entrants = [ENTRANTS[0], entrant("half", panel, AAA=0.5)]
    found = admit_entrants(panel, entrants, {each.name: panel for each in entrants})
    meter = Meter(time.perf_counter, lambda: 1 << 20)
    walked = [run_contest_backtest(each, panel, found.contest, meter) for each in found.admitted]
    assert found.contest.calendar == "24/7"
    cards = {card.entrant: card for card in score_runs(found.contest, walked, TRIALS, {}, AT)}
    half, equal = (
        each.curves["net_return"].to_numpy() for each in sorted(walked, key=lambda each: each.entrant.name)[::-1]
    )
    residual, card = residual_returns(half, equal), cards["half"]
    sharpe, ratio = (each.mean() * 365**0.5 / each.std(ddof=1) for each in (half, residual))
    assert card.metric("sharpe").value == pytest.approx(sharpe)
    assert card.openings[-1] == pytest.approx(sharpe)
    assert card.metric("volatility").value == pytest.approx(half.std(ddof=1) * 365**0.5)
    assert card.inference.information_ratio.value == pytest.approx(ratio)
    assert card.inference.information_ratio.low < ratio < card.inference.information_ratio.high


def test_information_ratio_is_against_best_baseline_of_contest(runs, cards):
    sharpes = {name: sharpe_ratio(returns(runs, name), 252) for name in ("equal_weight", "buy_and_hold")}
    best = max(sharpes, key=sharpes.__getitem__)
    found = cards["half"].inference
    residual = residual_returns(returns(runs, "half"), returns(runs, best))
    assert found.best_baseline == best
    assert found.information_ratio.value == sharpe_ratio(residual, 252)
    for name in ("half", "cash"):
        ratio = cards[name].inference.information_ratio
        interval = SharpeIntervals().draw(residual_of(runs, name, best)[0][:, None], 252).interval(0)
        assert (ratio.low, ratio.high) == pytest.approx(interval, rel=1e-9)
    assert cards["half"].metric("sharpe_difference").value == pytest.approx(
        sharpe_ratio(returns(runs, "half"), 252) - sharpes[best]
    )


def test_choices_of_seeds_are_on_card_page_and_row(runs):
    contest, (baseline, _, half, _) = runs
    chosen = replace(half, entrant=replace(half.entrant, choices=("fold 0: seed 1 (a2c)",)))
    cards = score_runs(contest, [baseline, chosen], TRIALS, {}, AT)
    assert [card.choices for card in cards] == [(), ("fold 0: seed 1 (a2c)",)]
    assert cards[1].row()["note"].endswith("fold 0: seed 1 (a2c)")
    assert "## Choices by validation\n\n- fold 0: seed 1 (a2c)\n" in markdown(cards[1])
    assert "Choices" not in markdown(cards[0])


def residual_of(runs, name, best):
    residual = residual_returns(returns(runs, name), returns(runs, best))
    return residual, float(sharpe_ratios(residual[:, None])[0])


def test_external_entrant_counts_as_a_trial(runs):
    contest, (equal_weight, _, half, _) = runs
    found = score_runs(contest, [equal_weight, half], TRIALS, {}, AT)[1].inference
    residual, own = residual_of(runs, "half", "equal_weight")
    assert found.n_trials == 4
    variance = np.var([0.02, -0.04, own], ddof=1)
    assert found.deflated_information_ratio == pytest.approx(
        deflated_sharpe_ratio(sharpe_moments(residual), 4, variance)
    )


def test_external_attempts_count_as_trials_of_every_entrant(runs, cards):
    best = cards["half"].inference.best_baseline
    (residual, own), (_, cash) = residual_of(runs, "half", best), residual_of(runs, "cash", best)
    found = cards["half"].inference
    assert (found.n_trials, cards["cash"].inference.n_trials) == (5, 5)
    variance = np.var([0.02, -0.04, own, cash], ddof=1)
    assert found.deflated_information_ratio == pytest.approx(
        deflated_sharpe_ratio(sharpe_moments(residual), 5, variance)
    )


def test_known_attempt_counts_once_and_changed_file_counts_again(runs, cards):
    same, other = attempt_id(cards["half"].configuration), attempt_id({"sha256": "half, as it was yesterday"})
    contest, found = runs
    again = {card.entrant: card for card in score_runs(contest, found, TRIALS.with_attempts({same: 0.01}), {}, AT)}
    assert again["half"].inference == cards["half"].inference
    tuned = {card.entrant: card for card in score_runs(contest, found, TRIALS.with_attempts({other: None}), {}, AT)}
    assert tuned["half"].inference.n_trials == 6
    assert tuned["half"].inference.deflated_information_ratio < cards["half"].inference.deflated_information_ratio


def test_attempt_id_ignores_file_name_and_description():
    configuration = {"kind": "weights", "sha256": "1", "description": "a", "file": "a.csv"}
    assert attempt_id(configuration) == attempt_id({**configuration, "description": "b", "file": "b.csv"})
    assert attempt_id(configuration) != attempt_id({**configuration, "sha256": "2"})


def test_known_run_adds_no_trial(runs):
    contest, (equal_weight, _, half, _) = runs
    known = replace(half, entrant=replace(half.entrant, kind="run", run_id="run-2"))
    cards = score_runs(contest, [equal_weight, known], TRIALS, {}, AT)
    assert cards[1].inference.n_trials == 3


def test_baseline_has_no_information_ratio(cards):
    found = cards["equal_weight"].inference
    assert (found.information_ratio.value, found.deflated_information_ratio) == (None, None)
    assert "is a baseline" in found.note


def test_cash_account_has_zero_sharpe_without_probability(cards):
    card = cards["cash"]
    assert card.metric("sharpe").value == 0.0
    assert card.inference.probabilistic_sharpe is None
    assert "returns that vary" in card.inference.note
    assert card.row()["sharpe"] == 0.0


def test_contest_without_baseline_leaves_inference_null(runs):
    contest, (*_, half, _) = runs
    (card,) = score_runs(contest, [half], TRIALS, {}, AT)
    assert card.inference.best_baseline is None
    assert "no baseline" in card.inference.note


def test_digest_ignores_scoring_time_and_measurements(runs, cards):
    contest, found = runs
    slower = [replace(each, seconds=each.seconds + 9.0, peak_memory=7) for each in found]
    again = {card.entrant: card for card in score_runs(contest, slower, TRIALS, STRESS, AT + dt.timedelta(days=1))}
    assert {name: card.digest for name, card in again.items()} == {name: card.digest for name, card in cards.items()}
    assert again["half"].row()["judgement"] != cards["half"].row()["judgement"]


def test_digest_ignores_training_seconds(cards):
    for card in cards.values():
        assert card.model_copy(update={"training_seconds": 12.5}).digest == card.digest


def test_digest_depends_on_inference(runs, cards):
    contest, found = runs
    other = score_runs(contest, found, replace(TRIALS, n_trials=30, n_counted=30.0), STRESS, AT)
    assert {card.entrant for card in other if card.digest != cards[card.entrant].digest} == {"half", "cash"}


def test_card_round_trips_through_json(cards):
    for card in cards.values():
        assert Scorecard.model_validate_json(card.as_json) == card
        assert json.loads(card.as_json)["contest"]["gross_limit"] == 1.0


def test_row_names_the_worst_scenario(cards):
    assert (cards["half"].row()["worst_scenario"], cards["half"].row()["worst_scenario_return"]) == ("gap", -0.1)
    assert cards["cash"].row()["worst_scenario"] is None


def test_page_shows_the_document(cards):
    page = markdown(cards["half"])
    card = cards["half"]
    assert page.startswith("# Scorecard: half\n")
    for text in (
        card.contest.digest,
        "costs proportional (bps 10)",
        f"{card.metric('sharpe').value:.2f} [",
        "| gap | -10.00% |",
        "the number of variants tried before this one was chosen is unknown",
        "decision latency, median",
        '"kind": "weights"',
    ):
        assert text in page


def test_refusal_card_has_reason_without_metrics(runs):
    card = refusal_card("late", "it has seen everything", AT, ENTRANTS[2], runs[0])
    assert card.metrics == {}
    assert card.row()["note"] == "it has seen everything"
    assert card.row()["contest"] == runs[0].digest
    assert "**Not scored**: it has seen everything" in markdown(card)


def test_narrow_panel_pads_absent_names_with_zero(runs):
    contest, found = runs
    fewer = synthetic_panel(320, 2)
    alone = replace(ENTRANTS[0], name="two names", market=MarketChoice(symbols=("AAA", "BBB")))
    narrow = run_contest_backtest(alone, fewer, contest, Meter(time.perf_counter, lambda: 1))
    cards = score_runs(contest, [*found, narrow], TRIALS, {}, AT)
    assert cards[-1].data.n_symbols == 2
    assert cards[-1].metric("effective_names").value == pytest.approx(2.0, rel=1e-3)


def test_entrant_that_fails_to_open_does_not_shorten_the_window():
    def broken(panel, window):
        raise ValueError("it is broken")

    def trained_entrant(name, last, opened):
        trained = (TrainingSpan(first=PANEL.sessions[0].item(), last=PANEL.sessions[last].item()),)
        return Entrant(name, "sb3", MarketChoice(), 5, {"name": name}, "code", opened, trained)

    early = trained_entrant("early", 20, lambda *_: EqualWeight().start())
    entrants = [early, trained_entrant("late", 40, broken), trained_entrant("worse", 60, broken), ENTRANTS[0]]
    market = SourceMarket(
        PANEL, {each.name: PANEL for each in entrants}, pl.DataFrame(schema=RETURNS), lambda _: TRIALS
    )
    meter = Meter(time.perf_counter, lambda: 1)
    found = {card.entrant: card for card in score_entrants(entrants, market, meter, AT, lambda _: None)}
    assert found["early"].contest.first_session == PANEL.sessions[21].item()
    assert (found["early"].refusal, found["equal_weight"].refusal) == ("", "")
    assert (found["late"].refusal, found["worse"].refusal) == ("it is broken", "it is broken")
    assert found["late"].contest == found["early"].contest


def test_entrant_that_did_not_change_is_not_walked_again():
    walked = []

    def opened(name):
        def open_policy(panel, window):
            walked.append(name)
            return EqualWeight().start()

        return open_policy

    def scored(names):
        walked.clear()
        entrants = [
            ENTRANTS[0],
            *(Entrant(name, "weights", MarketChoice(), 5, {"name": name}, "code", opened(name)) for name in names),
        ]
        panels = {each.name: PANEL for each in entrants}
        market = SourceMarket(PANEL, panels, pl.DataFrame(schema=RETURNS), lambda _: TRIALS, results=results)
        meter = Meter(time.perf_counter, lambda: 1)
        return {card.entrant: card for card in score_entrants(entrants, market, meter, AT, lines.append)}

    results, lines = {}, []
    first = scored(["old"])
    assert set(walked) == {"old"}
    second = scored(["old", "new"])
    assert set(walked) == {"new"}
    for name, metric in second["old"].metrics.items():  # the bootstrap sums all accounts in one product
        before = first["old"].metrics[name].model_dump(exclude_none=True)
        assert metric.model_dump(exclude_none=True) == pytest.approx(before, rel=1e-12)
    assert second["old"].measured == first["old"].measured
    assert any("1 of 1, 0:00:00 left" in line for line in lines)
