import datetime as dt

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.figures.agreement_figure import agreement_figure
from nvtrader_pipelines.market.calendar import NEW_YORK
from tests.figures.pictures import pixels

pytestmark = pytest.mark.slow
DAYS = NEW_YORK.sessions(dt.date(2020, 1, 2), dt.date(2024, 12, 31))


def some_outcomes(n):
    generator = np.random.default_rng(0)
    columns = {
        "session": DAYS[: 3 * n : 3],
        "session_number": NEW_YORK.session_numbers(DAYS[: 3 * n : 3]),
        "decision": [("approved", "edited", "overridden", "rejected")[i % 4] for i in range(n)],
        "reason": [f"$90 is {i % 9} % of\n$1,800, a long reason" for i in range(n)],
        "excess_pct": generator.normal(0.1, 1.0, n),
        "weight": [1.0] * n,
    }
    types = {
        "session": pl.Date,
        "session_number": pl.Int64,
        "decision": pl.String,
        "reason": pl.String,
        "excess_pct": pl.Float64,
    }
    return pl.DataFrame(columns, schema={**types, "weight": pl.Float64})


@pytest.mark.parametrize("n", [0, pytest.param(1, marks=pytest.mark.nightly), 400])
def test_figure_of_any_number_of_outcomes_is_one_slide_clear_of_the_edges(n, tmp_path):
    image = pixels(agreement_figure(some_outcomes(n)).png(), tmp_path)
    assert image.shape[:2] == (900, 1599)
    assert all((edge == 1.0).all() for edge in (image[:5], image[-5:], image[:, :5], image[:, -5:]))


def test_outcomes_that_do_not_count_are_not_drawn():
    outcomes = some_outcomes(8)
    known = outcomes.with_columns(weight=pl.lit(0.0))
    assert agreement_figure(pl.concat([outcomes, known])).png() == agreement_figure(outcomes).png()
    assert agreement_figure(known).png() == agreement_figure(outcomes.clear()).png()
