"""Checks of features: shape, missing values, and no look-ahead."""

from dataclasses import replace

import numpy as np

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.features import LOOK_BACK, Feature
from nvtrader_pipelines.market.history import PriceHistory
from nvtrader_pipelines.market.look_ahead import require_causal_feature
from nvtrader_pipelines.testing.synthetic_panels import synthetic_sessions, synthetic_symbols

N_SESSIONS, N_SYMBOLS = 700, 5
CUTS = (40, 260, 333, 500, N_SESSIONS - 2)
PRICE_ARRAYS = ("closes", "volumes", "highs", "lows", "opens")
TOLERANCE = 1e-5  # for features whose weights fade with age


def synthetic_history(seed: int = 0) -> PriceHistory:
    """Build five random walks: one listed late, one with missing bars, one with missing volumes.

    Of the outside series, `vix` has a value a session, and `pe` one a quarter and name.
    """
    generator = np.random.default_rng(seed)
    shape = (N_SESSIONS, N_SYMBOLS)
    closes = 50.0 * np.exp(np.cumsum(generator.normal(0.0003, 0.012, shape), axis=0))
    volumes = generator.integers(10_000, 90_000, shape).astype(np.float64)
    closes[:45, 3] = np.nan
    closes[::23, 1] = np.nan
    volumes[np.isnan(closes)] = np.nan
    volumes[::31, 2] = np.nan
    highs, lows = (closes * np.exp(sign * generator.exponential(0.004, shape)) for sign in (1.0, -1.0))
    opens = np.sqrt(highs * lows)
    days, symbols = synthetic_sessions(N_SESSIONS), synthetic_symbols(N_SYMBOLS)
    vix, pe = np.full((2, *shape), np.nan)
    vix[1:] = generator.lognormal(3.0, 0.3, (N_SESSIONS - 1, 1))
    for name in range(N_SYMBOLS):
        pe[name::63, name] = generator.lognormal(2.7, 0.5, len(pe[name::63]))
    return PriceHistory(days, symbols, closes, volumes, highs, lows, opens, NEW_YORK, {"vix": vix, "pe": pe})


def _joined(history: PriceHistory, other: PriceHistory, sessions: slice) -> PriceHistory:
    """Replace prices and outside series of some sessions by those of another history."""
    joined = {name: getattr(history, name).copy() for name in PRICE_ARRAYS}
    series = {name: values.copy() for name, values in history.series.items()}
    for name, values in (*joined.items(), *series.items()):
        values[sessions] = (other.series if name in series else vars(other))[name][sessions]
    return replace(history, **joined, series=series)


def check_values_are_finite_where_known(feature: Feature) -> None:
    """Require float64 values (T, N), finite or NaN, and known in a year of prices."""
    history = synthetic_history()
    values = feature.values(history)
    assert values.shape == history.closes.shape, f"values must have the shape {history.closes.shape} of the history"
    assert values.dtype == np.float64
    assert not np.isinf(values).any(), "values must be finite or NaN"
    assert np.isfinite(values[LOOK_BACK + 1 :, 0]).all(), f"values must be known after {LOOK_BACK + 1} sessions"


def check_name_depends_on_the_fields(feature: Feature) -> None:
    """Require a name that can be a column, and that equal features share."""
    assert feature.name.isidentifier(), f"the name {feature.name!r} must be usable as a column"
    assert feature.name == type(feature).model_validate(feature.model_dump()).name


def check_unpriced_sessions_have_no_value(feature: Feature) -> None:
    """Require NaN where a name has no price."""
    history = synthetic_history()
    assert np.isnan(feature.values(history)[~history.has_price]).all(), "values without a price must be NaN"


def check_values_do_not_look_ahead(feature: Feature) -> None:
    """Require bit-equal past values when the future is removed or replaced."""
    history, other = synthetic_history(), synthetic_history(seed=1)
    require_causal_feature(feature, history, CUTS)
    known = feature.values(history)
    for t in CUTS:
        found = feature.values(_joined(history, other, slice(t + 1, None)))
        np.testing.assert_array_equal(found[: t + 1], known[: t + 1])


def check_values_depend_on_a_year_of_prices(feature: Feature) -> None:
    """Require that prices older than a year do not matter: stressed markets are no longer."""
    history, other = synthetic_history(), synthetic_history(seed=1)
    stressed = _joined(history, other, slice(N_SESSIONS - LOOK_BACK - 1))
    known, found = (feature.values(version)[-1] for version in (history, stressed))
    np.testing.assert_allclose(found, known, atol=TOLERANCE)


def check_values_repeat(feature: Feature) -> None:
    """Require equal values of a second call."""
    history = synthetic_history()
    np.testing.assert_array_equal(feature.values(history), feature.values(history))


FEATURES = (
    check_values_are_finite_where_known,
    check_name_depends_on_the_fields,
    check_unpriced_sessions_have_no_value,
    check_values_do_not_look_ahead,
    check_values_depend_on_a_year_of_prices,
    check_values_repeat,
)
