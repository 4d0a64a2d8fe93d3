"""Readings of charts, computed from their data."""

import base64

import pytest
from pydantic import ValidationError

from nvtrader_pipelines.service.api.chart_reading import ChartRequest, read_chart

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nrest").decode()
RISING = [{"timesteps": 100 * n, "mean_reward": 0.01 * n} for n in range(30)]
TRIALS = [
    {"trial": n, "sharpe": value, "status": "kept" if n == 3 else "discarded"}
    for n, value in enumerate([0.5, 0.4, 0.6, 0.9, None, 0.2])
]
RUNS = [
    {"experiment": f"e{n}", "sharpe": 0.1 * n, "max_drawdown": 0.1 + 0.01 * n, "deflated_sharpe": 0.9 + 0.02 * n}
    for n in range(5)
]


@pytest.mark.parametrize(
    ("kind", "context", "figures"),
    [
        ("training_curve", {"curve": RISING}, ["30 points", "0.29", "rises", "timesteps 2900"]),
        ("training_curve", RISING, ["30 points"]),
        ("autoresearch", {"trials": TRIALS}, ["5 points", "0.9 at trial 3", "1 of 5 rows were kept"]),
        ("ratio_curve", {"rows": RUNS}, ["5 points", "experiment e4", "14.0%", "2 of 5"]),
    ],
)
def test_context_with_rows_is_read_in_four_to_six_bullets(kind, context, figures):
    reading = read_chart(ChartRequest(kind=kind, context=context, image_b64=f"data:image/png;base64,{PNG}"))
    text = " ".join(reading.bullets)
    assert 4 <= len(reading.bullets) <= 6
    assert all(figure in text for figure in figures)
    assert reading.model == "built-in"
    assert reading.seconds < 1


@pytest.mark.parametrize(("values", "trend"), [([3, 2, 1, 0], "falls"), ([1, 1, 1, 1], "stays level")])
def test_series_that_falls_or_rests_is_said_to(values, trend):
    rows = [{"mean_reward": value} for value in values]
    assert trend in read_chart(ChartRequest(kind="training_curve", context=rows)).bullets[1]


@pytest.mark.parametrize(
    "context",
    [
        [{"mean_reward": 1e200}, {"mean_reward": -1e200}],
        {},
        {"curve": []},
        {"curve": [{"mean_reward": 1}]},
        {"curve": [1, None, "x"]},
        {"curve": 3},
    ],
)
def test_context_without_two_numbers_is_refused(context):
    with pytest.raises(ValueError, match="at least 2 rows"):
        read_chart(ChartRequest(kind="training_curve", context=context))


@pytest.mark.parametrize("image", ["!!", base64.b64encode(b"GIF89a").decode(), "data:image/png;base64,=="])
def test_image_that_is_no_png_is_refused(image):
    with pytest.raises(ValidationError):
        ChartRequest(kind="autoresearch", image_b64=image)


def test_ratio_chart_without_drawdowns_is_read():
    rows = [{"experiment": f"e{n}", "sharpe": 0.1 * n} for n in range(5)]
    assert len(read_chart(ChartRequest(kind="ratio_curve", context={"rows": rows})).bullets) == 4
