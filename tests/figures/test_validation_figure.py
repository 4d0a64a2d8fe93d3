import polars as pl
import pytest

from nvtrader_pipelines.evaluation.trial_validation import validate
from nvtrader_pipelines.figures.validation_figure import (
    information_ratio_figure,
    overfitting_figure,
    validation_figures,
)
from tests.evaluation.small_trials import some_returns
from tests.evaluation.test_trial_validation import QUICK
from tests.figures.pictures import pixels

WHERE = {"source": pl.lit("sample"), "period": pl.lit("from_2010")}


def frames(n_trials):
    judged = validate(some_returns(max(n_trials, 1)).first(n_trials=n_trials).trials(), QUICK)
    experiment = pl.format("a-long-name-of-an-experiment-{}", pl.col("run_id"))
    return judged.trials.with_columns(**WHERE, experiment=experiment), judged.overfitting.with_columns(**WHERE)


def rendered(*found):
    """PNG of each figure, by name."""
    return {name: picture.png() for name, picture in validation_figures(*found).items()}


@pytest.mark.slow
@pytest.mark.parametrize("n_trials", [1, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 18)), 60])
def test_any_number_of_trials_has_figures_of_one_slide_clear_of_the_edges(n_trials, tmp_path):
    found = validation_figures(*frames(n_trials))
    assert set(found) == {"information_ratio_sample", "overfitting_sample"}
    for picture in found.values():
        image = pixels(picture.png(), tmp_path)
        assert image.shape[:2] == (900, 1599)
        assert all((edge == 1.0).all() for edge in (image[:5], image[-5:], image[:, :5], image[:, -5:]))


@pytest.mark.slow
def test_the_same_frames_give_the_same_bytes_and_a_note_is_drawn():
    trials, overfitting = frames(4)
    assert rendered(trials, overfitting) == rendered(trials, overfitting)
    assert information_ratio_figure(trials).png() != information_ratio_figure(trials, note="survivorship").png()
    row = overfitting.tail(1)
    assert overfitting_figure(row).png() != overfitting_figure(row, note="survivorship").png()


def test_without_trials_there_are_no_figures():
    assert validation_figures(*frames(0)) == {}


def test_the_figure_of_one_trial_says_why_there_is_no_overfitting():
    _, overfitting = frames(1)
    assert overfitting_figure(overfitting.head(1)).png() != overfitting_figure(overfitting.clear()).png()
