import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nvtrader_pipelines.figures.canvas import new_figure, readable, set_date_ticks, spread

heights = arrays(np.float64, st.integers(1, 12), elements=st.floats(0.0, 1.0))


@given(heights=heights, gap=st.floats(0.01, 0.2))
def test_labels_never_touch_and_keep_their_order(heights, gap):
    placed = spread(heights, gap, 1.0)
    order = np.argsort(heights, kind="stable")
    assert (np.diff(placed[order]) >= gap - 1e-9).all()
    assert placed.max() <= 1.0


@given(heights=heights)
def test_labels_with_room_stay_where_they_are(heights):
    apart = np.sort(heights) + np.arange(len(heights))
    assert spread(apart, 0.5, apart[-1]) == pytest.approx(apart)


def test_labels_that_push_one_another_share_the_way():
    assert spread(np.array([0.5, 0.5, 0.9]), 0.1, 1.0) == pytest.approx([0.45, 0.55, 0.9])


def test_a_long_note_is_cut_after_three_lines_and_says_so():
    figure = new_figure("title", "; ".join(f"warning number {i} of the runs" for i in range(60)))
    lines = figure.texts[-1].get_text().splitlines()
    assert len(lines) == 3
    assert lines[-1].endswith("… (more in the table)")
    assert new_figure("title", "one short note").texts[-1].get_text() == "one short note"


def test_long_names_with_one_beginning_stay_apart():
    names = [f"ppo_with_a_long_name_{end}" for end in ("low", "high")]
    assert [readable(name) for name in names] == ["ppo with…ame low", "ppo with…me high"]
    assert readable("equal_weight") == "equal weight"
    assert all(len(readable(name, longest)) == longest for name in names for longest in (10, 11, 16))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_days", [1, 2, 20, 90, 400, 1000, 1460, 1800, 12000])
def test_dates_of_any_span_have_few_ticks_without_a_warning(n_days):
    axes = new_figure("", None).add_axes((0.1, 0.1, 0.8, 0.8))
    axes.plot(np.datetime64("2019-01-02") + np.array([0, n_days]), [0.0, 1.0])
    set_date_ticks(axes)
    assert 2 <= len(axes.get_xticks()) <= 10
