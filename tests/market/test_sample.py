import numpy as np
import pytest

from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.market.sample import sample_panel


def test_sample_panel_holds_20_names_over_32_years_without_gaps():
    panel = sample_panel()
    assert panel.close_returns.shape == (8061, 20)
    assert (str(panel.sessions[0]), str(panel.sessions[-1])) == ("1990-12-31", "2022-12-28")
    assert panel.eligible.all()
    assert panel.overnight_returns is panel.high_returns is panel.low_returns is None
    assert "volume_z_21" not in panel.feature_names
    assert np.isfinite(panel.close_returns).all()
    assert np.isfinite(panel.features).all()


def test_digest_of_the_sample_panel_is_that_of_the_guide():
    """NumPy's logarithm rounds the last digit otherwise where the processor has no AVX-512."""
    wide = "45044cff1641119a66c2e0b7d29406d321cf2daba088dcc0cad4860336dab0e6"  # docs/guides/first-experiment.md
    narrow = "907979f336a70376f71826fdf7721072b0ea772108c28ea4d6c3d9986951d780"
    assert panel_digest(sample_panel()) in {wide, narrow}


def test_sample_panel_is_built_once():
    assert sample_panel() is sample_panel()
    assert panel_digest(sample_panel()) == panel_digest(sample_panel())


def test_returns_of_the_sample_compound_to_its_prices():
    from skfolio.datasets import load_sp500_dataset

    panel, prices = sample_panel(), load_sp500_dataset()
    apple = prices["AAPL"]
    grown = np.prod(1.0 + panel.close_returns[1:, panel.symbols.index("AAPL")])
    assert grown == pytest.approx(apple.iloc[-1] / apple.loc["1990-12-31"], rel=1e-9)
