"""What assets say of themselves."""

import base64
from io import BytesIO

import polars as pl
from PIL import Image

from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures
from nvtrader_pipelines.storage.home import Home


def png(width, height, mode="RGB") -> bytes:
    content = BytesIO()
    Image.new(mode, (width, height), "white").save(content, "PNG")
    return content.getvalue()


def sized(markdown) -> tuple[int, int]:
    """Width and height of the picture that the UI shows."""
    start = "![plot](data:image/png;base64,"
    assert markdown.startswith(start)
    with Image.open(BytesIO(base64.b64decode(markdown.removeprefix(start).removesuffix(")")))) as shown:
        return shown.size


def test_store_pictures_writes_files_and_returns_metadata(tmp_path):
    home, heat, bars = Home(tmp_path), png(4, 3), png(3, 4, "RGBA")
    metadata = store_pictures(home, "stress", {"heat": heat, "bars": bars}, partition_key="tiny@12345678")
    folder = home.warehouse / "pictures" / "stress" / "tiny@12345678"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"heat.png": heat, "bars.png": bars}
    assert (sized(metadata["heat"].value), sized(metadata["bars"].value)) == ((4, 3), (3, 4))
    assert metadata["pictures"].value == str(folder)


def test_wide_picture_is_scaled_in_metadata_and_stored_unchanged(tmp_path):
    slide = png(1600, 900)
    metadata = store_pictures(Home(tmp_path), "portfolio_state", {"equity_curve": slide})
    assert sized(metadata["equity_curve"].value) == (1120, 630)
    assert (Home(tmp_path).pictures / "portfolio_state" / "equity_curve.png").read_bytes() == slide


def test_store_pictures_deletes_outdated_ones_of_its_partition_only(tmp_path):
    home, one, two, three, four, five = Home(tmp_path), *(png(size, 1) for size in range(1, 6))
    store_pictures(home, "stress", {"heat": one, "bars": two}, partition_key="a")
    store_pictures(home, "stress", {"heat": three}, partition_key="b")
    store_pictures(home, "stress", {"heat": four}, partition_key="a")
    store_pictures(home, "stress", {"all": five})
    found = {str(path.relative_to(home.pictures)): path.read_bytes() for path in home.pictures.rglob("*.png")}
    assert found == {"stress/a/heat.png": four, "stress/b/heat.png": three, "stress/all.png": five}


def test_markdown_table_has_one_line_per_row():
    rows = pl.DataFrame({"event": ["halted", "placed"], "symbol": [None, "AAA"], "reason": ["a|b\nc", None]})
    assert markdown_table(rows).splitlines() == [
        "| event | symbol | reason |",
        "| --- | --- | --- |",
        r"| halted |  | a\|b c |",
        "| placed | AAA |  |",
    ]
    assert markdown_table(rows.clear()) == "nothing"
