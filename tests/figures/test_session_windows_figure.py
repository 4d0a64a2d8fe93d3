import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines import figures
from nvtrader_pipelines.evaluation.session_windows import session_windows
from tests.figures.pictures import pixels
from tests.markets import synthetic_sessions

NAMES = ("ppo-residual-with-a-larger-network", "a_baseline_of_many_words", "equal_weight")


def windows(names, n_sessions):
    generator = np.random.default_rng(0)
    accounts = [
        pl.DataFrame(
            {
                "policy": name,
                "episode": 0,
                "fold": 0,
                "session": synthetic_sessions(n_sessions).tolist(),
                "net_return": generator.normal(0.0005, 0.01, n_sessions),
            }
        )
        for name in names
    ]
    return session_windows(pl.concat(accounts), 42)


@pytest.mark.parametrize(("names", "n_sessions"), [(NAMES, 300), (NAMES[:1], 42)])
def test_windows_figure_has_a_box_per_account_and_leaves_edges_free(names, n_sessions, tmp_path):
    picture = figures.session_windows_figure(windows(names, n_sessions), "ppo", "Windows overlap.")
    image = pixels(picture.png(), tmp_path)
    assert all((edge == 1.0).all() for edge in (image[:5], image[-5:], image[:, :5], image[:, -5:]))
    assert len(picture.figure.axes[0].patches) == len(names)
