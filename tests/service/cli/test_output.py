import polars as pl
import pytest

from nvtrader_pipelines.service.cli.output import MAX_ROWS, Format, print_line, write_rows

MARKUP = "[bold]x [/x] :smile: pip install '.[yahoo]'"


def test_markup_in_a_table_is_data(capsys):
    write_rows(pl.DataFrame({"[red]name": [MARKUP]}), Format.TABLE)
    head, row, *_ = capsys.readouterr().out.splitlines()
    assert (head.strip(), row.strip()) == ("[red]name", MARKUP)


def test_markup_in_a_line_is_data(capsys):
    print_line(MARKUP)
    assert capsys.readouterr().out == f"{MARKUP}\n"


@pytest.mark.parametrize(
    ("n_rows", "footer"), [(1, "1 row"), (MAX_ROWS, f"{MAX_ROWS} rows"), (MAX_ROWS + 1, "… 1 more")]
)
def test_table_is_cut_after_its_largest_number_of_rows(capsys, n_rows, footer):
    write_rows(pl.DataFrame({"n": range(n_rows)}), Format.TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + min(n_rows, MAX_ROWS) + 1
    assert lines[-1].startswith(footer)


def test_csv_is_never_cut(capsys):
    write_rows(pl.DataFrame({"n": range(MAX_ROWS + 1)}), Format.CSV)
    assert len(capsys.readouterr().out.splitlines()) == 1 + MAX_ROWS + 1
