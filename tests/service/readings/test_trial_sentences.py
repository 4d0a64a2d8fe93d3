"""Reading of a search, against hand computations."""

import numpy as np
import pytest

from nvtrader_pipelines.service.readings import read_chart

BASE = 0.5


def page_row(trial, sharpe, *, error=0.1, standing="not above", knob=None):
    bounds = {"sharpe_low": sharpe - 1.96 * error, "sharpe_high": sharpe + 1.96 * error}
    knobs = {} if knob is None else {"knobs": {"vol_penalty": knob}}
    return {"trial": trial, "sharpe": sharpe, "standing": standing, "luck": BASE + 0.3, **bounds, **knobs}


def trial_sentences(rows, **facts):
    return read_chart("autoresearch", {**facts, "rows": rows})


RATIOS = [0.4, 0.55, 0.7, 0.5, 0.6, 0.45, 0.52, 0.48]


def test_best_trial_is_read_against_zero_and_luck():
    best, luck, progress, advice = trial_sentences(
        [page_row(n, r) for n, r in enumerate(RATIOS, 1)], base=BASE, budget=10
    )
    assert "Trial 3" in best
    assert "0.20 above the base (95 % interval 0.00 to 0.40, above zero)" in best  # 0.2 - 0.196
    assert "does not clear" in luck
    assert "5 of 8 trials" in progress
    assert "2 more trials" in advice
    assert "20%" in advice  # 2 of 10, as the best of equals is any of them
    assert "2.2 times" in advice or "2.3 times" in advice  # (0.3 / 0.2)^2


def test_trials_without_a_result_are_counted_by_reason():
    cut = [{"trial": n, "sharpe": None, "standing": "infeasible"} for n in (9, 10)]
    progress = trial_sentences([page_row(n, r) for n, r in enumerate(RATIOS, 1)] + cut, base=BASE)[2]
    assert "of 10 trials" in progress
    assert "2 infeasible" in progress


def test_kept_trial_above_luck_is_for_the_sealed_window():
    rows = [page_row(1, 0.4), page_row(2, 1.0, standing="kept")]
    assert "close the session" in trial_sentences(rows, base=BASE)[-1]
    assert "verdict" in trial_sentences(rows, base=BASE, outcome="winner")[-1]


@pytest.mark.parametrize(("slope", "verdict"), [(1.0, "have a high vol_penalty"), (0.0, "None of the one knob")])
def test_knob_that_orders_the_trials_is_named(slope, verdict):
    values = np.random.default_rng(5).random(30)
    ratios = slope * values + (1.0 - slope) * np.random.default_rng(6).random(30)
    rows = [page_row(n, float(r), knob=float(v)) for n, (r, v) in enumerate(zip(ratios, values, strict=True))]
    assert any(verdict in text for text in trial_sentences(rows, base=BASE))
