"""Readings of charts: requests, images and the rows of the page."""

import base64
import json
import struct
import time
import zlib
from io import BytesIO

import pytest
from PIL import Image
from pydantic import ValidationError

from nvtrader_pipelines.service.api.chart_reading import MAX_IMAGE, ChartRequest
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.sections.review import read_review
from nvtrader_pipelines.service.api.page.sections.search import read_search
from nvtrader_pipelines.service.api.page.sections.training import read_trainings
from nvtrader_pipelines.storage.store import Store
from tests.service.api.conftest import AUTHORIZED

JSON = {**AUTHORIZED, "content-type": "application/json"}
ROUTE = "/api/continuous-rl/interpret-chart"
RISING = [{"timesteps": 100 * n, "mean_reward": 0.01 * n} for n in range(1, 31)]
TRIALS = [{"trial": n, "sharpe": value} for n, value in enumerate([0.5, 0.4, 0.6, 0.9, None, 0.2])]
RUNS = [{"experiment": f"e{n}", "sharpe": 0.1 * n, "max_drawdown": 0.1 + 0.01 * n} for n in range(5)]


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width=4, height=4, *more):
    """PNG whose pixels are missing from size 5 on; `more` are further chunks."""
    picture = BytesIO()
    Image.new("L", (min(width, 4), min(height, 4))).save(picture, "PNG")
    rest = picture.getvalue()[33:]
    header = chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + rest


def encoded(content):
    return base64.b64encode(content).decode()


@pytest.mark.parametrize(
    ("kind", "context", "figure"),
    [
        ("training_curve", {"curve": RISING}, "3,000 steps"),
        ("training_curve", RISING, "3,000 steps"),
        ("autoresearch", {"trials": TRIALS}, "Trial 3 is the best"),
        ("ratio_curve", {"rows": RUNS}, "14.0%"),
    ],
)
def test_context_with_rows_is_read_in_four_to_six_bullets(client, kind, context, figure):
    body = {"kind": kind, "context": context, "image_b64": f"data:image/png;base64,{encoded(png())}"}
    reading = client.post(ROUTE, json=body, headers=AUTHORIZED).json()
    assert 4 <= len(reading["bullets"]) <= 6
    assert figure in " ".join(reading["bullets"])
    assert reading["model"] == "built-in"
    assert reading["seconds"] < 1


@pytest.mark.parametrize(
    "context",
    [
        [{"mean_reward": 1e200, "timesteps": 1}, {"mean_reward": -1e200, "timesteps": 2}],
        {},
        {"curve": []},
        {"curve": [{"mean_reward": 1, "timesteps": 5}]},
        {"curve": [{"mean_reward": 1}, {"mean_reward": 2}]},
        {"curve": [{"mean_reward": 1, "timesteps": 5}] * 2},
        {"curve": [1, None, "x"]},
        {"curve": 3},
    ],
)
def test_context_without_two_points_is_refused(client, context):
    answer = client.post(ROUTE, json={"kind": "training_curve", "context": context}, headers=AUTHORIZED)
    assert answer.status_code == 422


@pytest.mark.parametrize(
    "content",
    [
        b"GIF89a",
        b"",
        b"\x89PNG\r\n\x1a\nrest",
        png()[:40],
        png()[:16] + b"\0\0\0\x05" + png()[20:],  # another width than the checksum is of
        png(4097, 1),
        png(2**31 - 1, 2**31 - 1),
        png(4, 4, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 27)))),  # a bomb in a text
        png() + bytes(MAX_IMAGE),
        bytes([137]) + png()[1:20].replace(b"PNG", b"GIF"),
    ],
)
def test_image_that_is_no_small_png_is_refused_without_its_pixels(content):
    began = time.process_time()
    with pytest.raises(ValidationError):
        ChartRequest(kind="autoresearch", image_b64=f"data:image/png;base64,{encoded(content)}")
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("text", ["!!", "data:image/png;base64,==", "\ud800", encoded(png()) + "\n\n*"])
def test_image_that_is_not_base64_is_refused(text):
    with pytest.raises(ValidationError):
        ChartRequest(kind="autoresearch", image_b64=text)


def test_image_of_the_largest_side_is_accepted_without_its_pixels():
    assert ChartRequest(kind="autoresearch", image_b64=encoded(png(4096, 4096))).image_b64


@pytest.mark.parametrize(("n_more", "status"), [(0, 200), (1, 422), (3 << 20, 413)])
def test_route_takes_images_of_four_megabytes(client, n_more, status):
    n_padding = MAX_IMAGE - len(png()) - 12 + n_more
    content = png(4, 4, chunk(b"teSt", bytes(n_padding)))
    body = {"kind": "training_curve", "image_b64": encoded(content), "context": {"curve": RISING}}
    answer = client.post(ROUTE, json=body, headers=AUTHORIZED)
    assert answer.status_code == status
    assert status == 200 or "MB" in answer.json()["detail"]


def test_rows_of_the_page_are_read(client, built_home):
    shared = Context(Store(built_home), "ann")
    content = {"ratio_curve": read_review, "autoresearch": read_search, "training_curve": read_trainings}
    parts = {kind: part for kind, read in content.items() for part in read(shared).series.values() if part.rows}
    assert "ratio_curve" in parts
    for kind, part in parts.items():
        twins = [{**row, "experiment": "twin"} for row in part.rows if kind == "ratio_curve"]  # the home has one run
        context = {**part.facts, "rows": [*part.rows, *twins]}
        answer = client.post(ROUTE, content=json.dumps({"kind": kind, "context": context}), headers=JSON)
        assert answer.json()["model"] == "built-in"
