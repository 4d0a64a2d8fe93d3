import numpy as np
import pytest

from nvtrader_pipelines.envs.observations import ObservationScaler, PerAssetObservation
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.envs.observations.per_asset_builder import ASSET_COLUMNS, CLIP, CONTEXT_COLUMNS, asset_columns
from nvtrader_pipelines.portfolio.anchors import EqualWeightAnchor, market_returns
from tests.markets import synthetic_panel
from tests.panels import INELIGIBLE, NEVER, eventful_panel

N = 6


def observed(panel, t, weights, anchor=None):
    observation = PerAssetObservation(anchor=anchor or EqualWeightAnchor())
    builder = observation.start(panel, ObservationScaler(), 20)
    (row,) = builder.observe(np.array([t]), AccountView(np.array([weights]), np.zeros(1)))
    n_symbols = len(panel.symbols)
    return row[:-CONTEXT_COLUMNS].reshape(n_symbols, ASSET_COLUMNS), row[-CONTEXT_COLUMNS:]


def test_asset_columns_are_trends_in_units_of_volatility():
    panel = synthetic_panel(300, 4)
    t, name = 280, 2
    feature = {key: panel.feature(key)[t] for key in panel.feature_names}
    day, month, year = (feature[f"volatility_{window}"] for window in (21, 63, 252))
    expected = [
        feature["return_1"][name] / day[name] / 2,
        feature["return_5"][name] / (day[name] * 5**0.5),
        feature["return_21"][name] / (year[name] * 21**0.5),
        feature["momentum_12_1"][name] / (year[name] * 231**0.5),
        feature["momentum_6_1"][name] / (year[name] * 105**0.5),
        2 * np.log(day[name] / year[name]),
        2 * (np.log(month[name]) - np.log(month).mean()),
        3 * feature["drawdown_252"][name],
        *(feature[f"rank_{key}"][name] for key in ("return_5", "return_21", "momentum_12_1", "volatility_63")),
    ]
    np.testing.assert_allclose(asset_columns(panel)[t, name], expected, rtol=1e-9)


def test_last_asset_columns_are_anchor_weight_and_distance():
    panel = synthetic_panel(60, 4)
    assets, context = observed(panel, 50, [0.5, 0.25, 0.0, 0.05, 0.2])
    np.testing.assert_allclose(assets[:, -2], 0.0, atol=1e-6)
    np.testing.assert_allclose(assets[:, -1], [1.0, 0.0, -1.0, -0.8], atol=1e-6)
    assert context[-1] == np.float32(0.2)


def test_ineligible_name_has_no_market_columns():
    assets, _ = observed(eventful_panel(), 100, [0.0] * N + [1.0])
    assert not assets[[INELIGIBLE, NEVER], :-2].any()
    assert (assets[[INELIGIBLE, NEVER], -2] == -1.0).all()


def test_context_describes_the_equal_weight_market():
    panel = synthetic_panel(400, 4)
    _, context = observed(panel, 390, [0.0] * 4 + [1.0])
    market = market_returns(panel)[: 390 + 1]
    month, year = market[-21:].std(), market[-252:].std()
    level = np.cumprod(1 + market)
    expected = [
        market[-21:].sum() / year / 21**0.5,
        market[-252:].sum() / year / 252**0.5,
        np.log(month * 252**0.5 / 0.18),
        np.log(month / year),
        3 * (level[-1] / level[-252:].max() - 1),
        market[-63:].var() / (panel.feature("volatility_63")[390] ** 2).mean(),
    ]
    np.testing.assert_allclose(context[:-1], expected, rtol=1e-4, atol=1e-6)


def test_columns_are_finite_and_clipped_from_the_first_session():
    panel = eventful_panel()
    builder = PerAssetObservation().start(panel, ObservationScaler(), 20)
    t = np.arange(len(panel.sessions))
    weights = np.tile(np.eye(N + 1)[0], (len(t), 1))
    rows = builder.observe(t, AccountView(weights, np.zeros(len(t))))
    assert np.isfinite(rows).all()
    assert np.abs(rows).max() <= CLIP


def test_panel_without_a_required_feature_is_refused():
    panel = synthetic_panel(30, 3)
    without = type(panel)(
        **{**vars(panel), "features": panel.features[:, :, 1:], "feature_names": panel.feature_names[1:]}
    )
    with pytest.raises(KeyError):
        PerAssetObservation().start(without, ObservationScaler(), 20)
