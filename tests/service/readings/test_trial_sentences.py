"""Reading of a search, against hand computations and an independent rank test."""

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from nvtrader_pipelines.service.readings.chart_rows import half_difference
from nvtrader_pipelines.service.readings.trial_sentences import _split, trial_sentences

BASE = 0.5


def page_row(trial, sharpe, *, error=0.1, standing="not above", knob=None):
    bounds = {"sharpe_low": sharpe - 1.96 * error, "sharpe_high": sharpe + 1.96 * error}
    knobs = {} if knob is None else {"knobs": {"vol_penalty": knob}}
    return {"trial": trial, "sharpe": sharpe, "standing": standing, "luck": BASE + 0.3, **bounds, **knobs}


def journal_row(trial, sharpe, *, error=0.1, standing="not above"):
    figures = {"lead": sharpe - BASE, "t": (sharpe - BASE) / error, "bar": 3.0, "standing": standing, "event": "trial"}
    return {"trial": trial, "sharpe": sharpe, "status": "judged", **figures}


RATIOS = [0.4, 0.55, 0.7, 0.5, 0.6, 0.45, 0.52, 0.48]


def test_rows_of_page_and_journal_read_alike():
    page = trial_sentences([page_row(n, r) for n, r in enumerate(RATIOS, 1)], {"base": BASE, "budget": 10})
    rows = [{"event": "base", "sharpe": BASE}, *(journal_row(n, r) for n, r in enumerate(RATIOS, 1))]
    assert trial_sentences(rows, {"budget": 10}) == page


def test_best_trial_is_read_against_zero_and_luck():
    best, luck, progress, advice = trial_sentences(
        [page_row(n, r) for n, r in enumerate(RATIOS, 1)], {"base": BASE, "budget": 10}
    )
    assert "Trial 3" in best
    assert "0.20 above the base (95 % interval 0.00 to 0.40, above zero)" in best  # 0.2 - 0.196
    assert "does not clear" in luck
    assert "5 of 8 trials" in progress
    assert "2 more trials" in advice
    assert "20%" in advice  # 2 of 10, as the best of equals is any of them
    assert "2.2 times" in advice or "2.3 times" in advice  # (0.3 / 0.2)^2


def test_rerun_replaces_the_first_result_and_keeps_the_knobs():
    rows = [journal_row(n, r) for n, r in enumerate(RATIOS, 1)]
    rerun = journal_row(3, 0.5, standing="seed noise") | {"event": "rerun", "status": None, "changed": {}}
    assert "Trial 5 is the best" in trial_sentences([*rows, rerun], {"base": BASE})[0]


def test_trials_without_a_result_are_counted_by_reason():
    cut = [{"trial": n, "sharpe": None, "standing": "infeasible"} for n in (9, 10)]
    other = {"event": "answer", "status": "used", "trial": None}  # a journal has lines that are no trials
    known = {"trial": 3, "sharpe": 0.7, "status": "known", "standing": "known"}
    progress = trial_sentences(
        [page_row(n, r) for n, r in enumerate(RATIOS, 1)] + [*cut, other, known], {"base": BASE}
    )[2]
    assert "of 10 trials" in progress
    assert "2 infeasible, 1 known before" in progress


def test_kept_trial_above_luck_is_for_the_sealed_window():
    rows = [page_row(1, 0.4), page_row(2, 1.0, standing="kept")]
    assert "close the session" in trial_sentences(rows, {"base": BASE})[-1]
    assert "verdict" in trial_sentences(rows, {"base": BASE, "outcome": "winner"})[-1]


def test_split_equals_a_rank_test():
    rng = np.random.default_rng(0)
    worst, best = rng.normal(0.0, 1.0, 8), rng.normal(1.0, 1.0, 8)
    from_scipy = mannwhitneyu(best, worst, use_continuity=False, method="asymptotic")
    z = _split(list(worst), list(best))
    assert z * np.sqrt(8 * 8 * 17 / 12) + 32 == pytest.approx(from_scipy.statistic)


@pytest.mark.parametrize(("slope", "verdict"), [(1.0, "have a high vol_penalty"), (0.0, "None of the one knob")])
def test_knob_that_orders_the_trials_is_named(slope, verdict):
    values = np.random.default_rng(5).random(30)
    ratios = slope * values + (1.0 - slope) * np.random.default_rng(6).random(30)
    rows = [page_row(n, float(r), knob=float(v)) for n, (r, v) in enumerate(zip(ratios, values, strict=True))]
    assert any(verdict in text for text in trial_sentences(rows, {"base": BASE}))


def test_half_difference_has_the_error_of_two_means():
    assert half_difference([1.0, 3.0, 2.0, 5.0, 7.0, 6.0]) == pytest.approx((4.0, np.sqrt(2 / 3)))
