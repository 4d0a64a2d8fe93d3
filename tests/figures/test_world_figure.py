import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_rgb

from nvtrader_pipelines.evaluation.world_results import world_results
from nvtrader_pipelines.figures import theme, world_figure
from tests.figures.pictures import pixels

pytestmark = pytest.mark.slow

ORDER = {"world": "tradesim_execution", "agent": "eteo", "reference": "almgren_chriss"}
ASSET = {"world": "tradesim_algotrading", "agent": "deepscalper", "reference": "buy_and_hold"}


def some_results(n, n_seeds=5):
    generator, frames = np.random.default_rng(0), []
    for i in range(n):
        scale, names = (1.0, ASSET) if i % 3 == 1 else (1e-4, ORDER)
        rewards = scale * generator.normal(i % 4 - 1, 1.0, (n_seeds + 1, 4))
        played = [pl.DataFrame({"episode": range(4), "reward": row}) for row in rewards]
        frame = world_results(dict(enumerate(played[1:])), played[0], **names)
        frames.append(frame.with_columns(experiment=pl.lit(f"experiment-with-a-long-name-{i}")))
    return pl.concat(frames)


@pytest.mark.parametrize(("n", "n_seeds", "height"), [(1, 1, 372), (10, 5, 1248)])
def test_figure_grows_with_the_experiments_and_is_clear_of_the_edges(n, n_seeds, height, tmp_path):
    image = pixels(world_figure(some_results(n, n_seeds)).png(), tmp_path)
    assert image.shape[:2] == (height, 1599)
    assert all((edge == 1.0).all() for edge in (image[:5], image[-5:], image[:, :5], image[:, -5:]))


@pytest.mark.parametrize(
    ("low", "high", "color"), [(0.1, 0.3, theme.BLUE), (-0.3, -0.1, theme.VERMILION), (-0.1, 0.3, theme.GREY)]
)
def test_mean_is_colored_if_its_interval_is_on_one_side_of_zero(low, high, color, tmp_path):
    rows = some_results(1).with_columns(difference=(low + high) / 2, difference_low=low, difference_high=high)
    row_of_mean = pixels(world_figure(rows).png(), tmp_path)[100:170, 360:1400]
    colors = (theme.BLUE, theme.VERMILION, theme.GREY)
    counts = {each: np.isclose(row_of_mean, to_rgb(each), atol=0.01).all(axis=2).sum() for each in colors}
    assert counts.pop(color) > 100
    assert set(counts.values()) == {0}
