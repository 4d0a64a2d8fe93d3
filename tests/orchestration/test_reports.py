"""What assets say of themselves."""

import base64
from io import BytesIO

import polars as pl
import pytest
from matplotlib.figure import Figure
from PIL import Image

from nvtrader_pipelines.figures.canvas import Picture
from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures
from nvtrader_pipelines.storage.home import Home


def picture(width, height) -> Picture:
    """An empty picture of so many pixels."""
    return Picture(Figure(figsize=(width / 100, height / 100), dpi=100))


def sized(markdown) -> tuple[int, int]:
    """Width and height of the picture that the UI shows."""
    start = "![plot](data:image/png;base64,"
    assert markdown.startswith(start)
    with Image.open(BytesIO(base64.b64decode(markdown.removeprefix(start).removesuffix(")")))) as shown:
        return shown.size


def test_store_pictures_writes_files_and_returns_metadata(tmp_path):
    home, heat, bars = Home(tmp_path), picture(40, 30), picture(30, 40)
    metadata = store_pictures(home, "stress", {"heat": heat, "bars": bars}, partition_key="tiny@12345678")
    folder = home.warehouse / "pictures" / "stress" / "tiny@12345678"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "heat.png": heat.png(),
        "heat.svg": heat.svg(),
        "bars.png": bars.png(),
        "bars.svg": bars.svg(),
    }
    assert (sized(metadata["heat"].value), sized(metadata["bars"].value)) == ((40, 30), (30, 40))
    assert metadata["pictures"].value == str(folder)


@pytest.mark.slow
def test_wide_picture_is_scaled_in_metadata_and_stored_unchanged(tmp_path):
    slide = picture(1600, 900)
    metadata = store_pictures(Home(tmp_path), "portfolio_state", {"equity_curve": slide})
    assert sized(metadata["equity_curve"].value) == (1120, 630)
    assert (Home(tmp_path).pictures / "portfolio_state" / "equity_curve.png").read_bytes() == slide.png()


def test_store_pictures_deletes_outdated_ones_of_its_partition_only(tmp_path):
    home, one, two, three, four, five = Home(tmp_path), *(picture(10 * size, 10) for size in range(1, 6))
    store_pictures(home, "stress", {"heat": one, "bars": two}, partition_key="a")
    store_pictures(home, "stress", {"heat": three}, partition_key="b")
    store_pictures(home, "stress", {"heat": four}, partition_key="a")
    store_pictures(home, "stress", {"all": five})
    found = {str(path.relative_to(home.pictures)): path.read_bytes() for path in home.pictures.rglob("*.*")}
    kept = {"stress/a/heat": four, "stress/b/heat": three, "stress/all": five}
    assert found == {f"{name}.png": each.png() for name, each in kept.items()} | {
        f"{name}.svg": each.svg() for name, each in kept.items()
    }


def test_markdown_table_has_one_line_per_row():
    rows = pl.DataFrame({"event": ["halted", "placed"], "symbol": [None, "AAA"], "reason": ["a|b\nc", None]})
    assert markdown_table(rows).splitlines() == [
        "| event | symbol | reason |",
        "| --- | --- | --- |",
        r"| halted |  | a\|b c |",
        "| placed | AAA |  |",
    ]
    assert markdown_table(rows.clear()) == "nothing"
