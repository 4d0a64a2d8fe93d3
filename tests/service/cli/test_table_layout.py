import polars as pl
import pytest

from nvtrader_pipelines.service.cli.output import Format, write_rows
from nvtrader_pipelines.service.cli.table_layout import MIN_PROSE, PADDING, CellTable

NAME = "ppo-a-rather-long-experiment-name@0e47b2c5"
BOARD = CellTable(("rank", "entrant", "net Sharpe", "kind", "note"), [("1", NAME, "0.92", "run", "a few words " * 9)])


def total(widths):
    return sum(widths) + PADDING * len(widths)


@pytest.mark.parametrize("room", [80, 120, 160])
def test_rank_name_and_sharpe_are_whole_at_every_width(room):
    widths = BOARD.fit_widths(room)
    assert len(widths) >= 3
    assert (widths[1], total(widths) <= room) == (len(NAME), True)
    assert widths[2] >= len("Sharpe")


def test_columns_are_left_out_from_the_last_one():
    assert len(BOARD.fit_widths(80)) == 4
    assert len(BOARD.fit_widths(100)) == 5


def test_wide_room_gives_every_column_its_own_width():
    assert BOARD.fit_widths(400) == [4, len(NAME), 10, 4, len(BOARD.rows[0][4])]


def test_sentence_is_wrapped_before_a_column_is_left_out():
    table = CellTable(("check", "result", "problem"), [("views", "a result " * 20, "a problem " * 20)])
    widths = table.fit_widths(80)
    assert (len(widths), min(widths[1:]) >= MIN_PROSE, total(widths)) == (3, True, 80)


def test_digest_longer_than_the_room_is_folded_not_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    write_rows(pl.DataFrame({"file": ["fold-0-seed-0.zip"], "sha256": ["0123456789abcdef" * 4]}), Format.TABLE)
    _, *lines, count = capsys.readouterr().out.splitlines()
    assert "".join(line[18:].strip() for line in lines).replace("zip", "").endswith("0123456789abcdef" * 4)
    assert (max(map(len, lines)) <= 60, count) == (True, "1 row")


def test_table_names_the_columns_that_it_leaves_out(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    write_rows(pl.DataFrame({"first": [1.5], "second": [2.5], "third": [3.5]}), Format.TABLE)
    shown = " ".join(capsys.readouterr().out.split())
    assert shown == "first second 1.5 2.5 left out: third; a wider terminal or --json shows them 1 row"


def test_empty_table_has_its_header():
    assert CellTable(("one", "two"), []).fit_widths(80) == [3, 3]
