import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_rgb

from nvtrader_pipelines.evaluation.world_results import world_results
from nvtrader_pipelines.figures import theme, world_figure
from tests.figures.pictures import pixels

ORDER = {"world": "tradesim_execution", "agent": "eteo", "reference": "almgren_chriss"}
ASSET = {"world": "tradesim_algotrading", "agent": "deepscalper", "reference": "buy_and_hold"}


def some_results(n, n_seeds=5):
    generator = np.random.default_rng(0)

    def rewards(scale, mean):
        return pl.DataFrame({"episode": range(4), "reward": generator.normal(mean, scale, 4)})

    rows = []
    for i in range(n):
        scale, names = (1.0, ASSET) if i % 3 == 1 else (1e-4, ORDER)
        seeds = {seed: rewards(scale, scale * (i % 4 - 1)) for seed in range(n_seeds)}
        frame = world_results(seeds, rewards(0.1 * scale, 0.0), **names)
        rows.append(frame.with_columns(experiment=pl.lit(f"experiment-with-a-long-name-{i}")))
    return pl.concat(rows)


@pytest.mark.parametrize(("n", "n_seeds", "height"), [(1, 1, 372), (1, 5, 372), (10, 5, 1248)])
def test_figure_of_one_or_ten_experiments_grows_and_is_clear_of_the_edges(n, n_seeds, height, tmp_path):
    image = pixels(world_figure(some_results(n, n_seeds)).png(), tmp_path)
    assert image.shape[:2] == (height, 1599)
    assert all((edge == 1.0).all() for edge in (image[:5], image[-5:], image[:, :5], image[:, -5:]))


@pytest.mark.parametrize(
    ("low", "high", "color"), [(0.1, 0.3, theme.BLUE), (-0.3, -0.1, theme.VERMILION), (-0.1, 0.3, theme.GREY)]
)
def test_mean_is_colored_if_its_interval_is_on_one_side_of_zero(low, high, color, tmp_path):
    rows = some_results(1).with_columns(difference=(low + high) / 2, difference_low=low, difference_high=high)
    row_of_means = pixels(world_figure(rows).png(), tmp_path)[100:170, 360:1400]
    counts = {each: _count(row_of_means, each) for each in (theme.BLUE, theme.VERMILION, theme.GREY)}
    assert counts.pop(color) > 100
    assert set(counts.values()) == {0}


def _count(image, color):
    return int(np.isclose(image, to_rgb(color), atol=0.01).all(axis=2).sum())


def test_no_results_are_one_slide():
    empty = some_results(1).clear()
    assert world_figure(empty).png() != world_figure(some_results(1)).png()
