import numpy as np

from nvtrader_pipelines.portfolio.pipeline.estimation import EstimationWindow
from tests.panels import LATE, LISTED_AT, STEADY, eventful_panel

HISTORY, EVERY = 20, 5
FULL = LISTED_AT + 20  # a multiple of five
WANTED = np.isin(np.arange(6), [STEADY, LATE])


def test_window_ends_at_the_last_multiple():
    panel = eventful_panel()
    window = EstimationWindow(panel, HISTORY, EVERY)
    for t in (FULL, FULL + 4):
        past = window.past(WANTED, t)
        assert past is not None
        assert past.at == FULL
        np.testing.assert_array_equal(past.returns, panel.close_returns[FULL - HISTORY + 1 : FULL + 1, WANTED])


def test_name_counts_once_listed_by_the_windows_start():
    panel = eventful_panel()
    exactly, one_more = (EstimationWindow(panel, history, EVERY).past(WANTED, FULL) for history in (21, 22))
    assert exactly is not None
    assert one_more is not None
    assert np.flatnonzero(exactly.names).tolist() == [STEADY, LATE]
    assert np.flatnonzero(one_more.names).tolist() == [STEADY]


def test_no_past_before_the_first_whole_history():
    window = EstimationWindow(eventful_panel(), HISTORY, 1)
    assert window.past(WANTED, HISTORY - 2) is None
    assert window.past(WANTED, HISTORY - 1) is not None
