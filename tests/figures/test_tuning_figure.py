import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.figures.tuning_figure import tuning_figure
from nvtrader_pipelines.policies.rollout_tables import PREFERENCE_EPOCH
from nvtrader_pipelines.preferences.holdout_auc import CalibrationBin, HoldoutAuc
from tests.figures.pictures import pixels

pytestmark = pytest.mark.slow
CHANCE, SKILL = HoldoutAuc(0.5, 0.5, 0.5, 0.5, 8, 2), HoldoutAuc(0.9, 0.87, 0.93, 0.8, 123456, 12345)
BINS = [CalibrationBin(9, predicted, 1.0 - predicted) for predicted in (0.0, 0.5, 1.0)]


def some_epochs(n, splits=("train", "stop")):
    epochs = np.arange(n)
    frames = [
        pl.DataFrame(
            {
                "epoch": epochs,
                "split": split,
                "n_pairs": 9,
                "loss": np.log(2.0) - 0.01 * epochs,
                "log_ratio_chosen": -100.0 * epochs,
                "log_ratio_rejected": -200.0 * epochs,
                "margin": 50.0 * epochs,
                "accuracy": 0.5,
                "kl": 1e-4 * epochs,
            },
            schema_overrides=PREFERENCE_EPOCH,
        )
        for split in splits
    ]
    return pl.concat(frames)


@pytest.mark.parametrize("auc", [CHANCE, SKILL], ids=["chance", "skill"])
@pytest.mark.parametrize(
    ("n", "splits"),
    [
        (1, ("train",)),
        (60, ("train", "stop")),
        *(pytest.param(*case, marks=pytest.mark.nightly) for case in [(1, ("train", "stop")), (60, ("train",))]),
    ],
)
def test_figure_of_any_number_of_epochs_is_one_slide_clear_of_the_edges(n, splits, auc, tmp_path):
    image = pixels(tuning_figure(some_epochs(n, splits), auc, BINS, "tuned").png(), tmp_path)
    assert image.shape[:2] == (900, 1599)
    assert all((edge == 1.0).all() for edge in (image[:5], image[-5:], image[:, :5], image[:, -5:]))


def test_ln_2_is_drawn_only_where_the_loss_begins_there():
    sigmoid, ipo = (tuning_figure(some_epochs(3).with_columns(pl.col("loss") + up), SKILL, BINS, "") for up in (0, 1))
    lines = [len(picture.figure.axes[0].lines) for picture in (sigmoid, ipo)]
    assert lines == [3, 2]


def test_auc_of_chance_has_two_digits():
    title = tuning_figure(some_epochs(3), CHANCE, BINS, "tuned").figure.axes[3].get_title(loc="left")
    assert title == "AUC 0.50 [0.50, 0.50]"


def test_equal_inputs_give_equal_bytes():
    first, second = (tuning_figure(some_epochs(3), SKILL, BINS, "tuned").png() for _ in range(2))
    assert first == second
