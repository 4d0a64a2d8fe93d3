import datetime as dt

import pytest

from nvtrader_pipelines import figures
from nvtrader_pipelines.evaluation.guard_comparison import GuardSlice
from nvtrader_pipelines.evaluation.guard_telemetry import GuardTelemetry
from tests.figures.pictures import pixels

pytestmark = pytest.mark.slow


def guard_slice(i):
    """A slice, guarded in every second."""
    rate = float(i % 2)
    telemetry = GuardTelemetry(9, rate, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, None, 0, 0.9, 1.0)
    first = dt.date(2015, 1, 5) + dt.timedelta(days=60 * i)
    returns = (0.01 * i, 0.01 * i - 0.02 * rate, 0.0)
    return GuardSlice(0, first, first + dt.timedelta(days=57), *returns, 0.05, 0.06, 0.04, telemetry)


@pytest.mark.parametrize("n_slices", [2, 60])
def test_guard_figure_has_a_bar_per_slice_and_leaves_edges_free(n_slices, tmp_path):
    slices = [guard_slice(i) for i in range(n_slices)]
    picture = figures.guard_slices_figure(slices, "guarded", "Slices do not overlap.")
    returns, differences = picture.figure.axes
    assert [bar.get_height() for bar in differences.patches] == pytest.approx([0.02 * (i % 2) for i in range(n_slices)])
    fired = next(line for line in returns.lines if line.get_label() == "a guard fired")
    assert len(fired.get_xdata()) == n_slices // 2
    image = pixels(picture.png(), tmp_path)
    assert all((edge == 1.0).all() for edge in (image[:5], image[-5:], image[:, :5], image[:, -5:]))
