import pytest

from nvtrader_pipelines.figures.search_figure import SearchPoint, search_figure
from tests.figures.pictures import pixels

pytestmark = pytest.mark.slow


def some_points(n_trials):
    return [
        SearchPoint(
            trial=number,
            sharpe=None if number % 7 == 0 else -0.5 + 0.01 * (37 * number % 100),
            is_kept=number % 10 == 3,
            luck=0.6 if number > 1 else None,
            kept=0.01 * (number // 10) if number > 2 else None,
        )
        for number in range(1, n_trials + 1)
    ]


@pytest.mark.parametrize(
    "n_trials", [0, pytest.param(1, marks=pytest.mark.nightly), pytest.param(7, marks=pytest.mark.nightly), 500]
)
def test_figure_of_any_number_of_trials_is_one_slide_clear_of_the_edges(n_trials, tmp_path):
    image = pixels(search_figure(some_points(n_trials), 0.7, "Search", "note").png(), tmp_path)
    assert image.shape[:2] == (900, 1599)
    assert all((edge == 1.0).all() for edge in (image[:5], image[-5:], image[:, :5], image[:, -5:]))


def test_equal_points_give_equal_bytes_and_a_kept_one_is_drawn_apart():
    points = some_points(6)
    assert search_figure(points, 0.7, "Search").png() == search_figure(points, 0.7, "Search").png()
    others = [SearchPoint(point.trial, point.sharpe, luck=point.luck, kept=point.kept) for point in points]
    assert search_figure(others, 0.7, "Search").png() != search_figure(points, 0.7, "Search").png()
