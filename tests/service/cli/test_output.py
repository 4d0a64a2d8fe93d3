import polars as pl
import pytest

from nvtrader_pipelines.service.cli.output import MAX_ROWS, Format, print_differences, print_line, write_rows

SENTENCE = "one sentence that is far longer than the terminal is wide, so a table would leave its column out"
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


@pytest.mark.parametrize("columns", ["20", "80", "120"])
def test_sentences_follow_a_table_whole_at_every_width(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    rows = pl.DataFrame({"name": ["a", "b", "c", "d"], "n": range(4), "problem": [SENTENCE, "", None, SENTENCE]})
    write_rows(rows, Format.TABLE, ["problem"])
    head, *_, count, sentence = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "n"]
    assert (count, sentence) == ("4 rows", f"a, d: {SENTENCE}")


def test_every_sentence_of_a_list_has_its_line(capsys):
    write_rows(pl.DataFrame({"name": ["a"], "warnings": [["first", "second"]]}), Format.TABLE, ["warnings"])
    assert capsys.readouterr().out.splitlines()[-2:] == ["a: first", "a: second"]


@pytest.mark.parametrize("form", [Format.CSV, Format.JSON])
def test_sentences_stay_columns_of_csv_and_json(capsys, form):
    rows = pl.DataFrame({"name": ["a"], "problem": [SENTENCE]})
    write_rows(rows, form)
    plain = capsys.readouterr().out
    write_rows(rows, form, ["problem"])
    assert capsys.readouterr().out == plain


def test_differences_show_both_sides_at_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    fields = pl.DataFrame({"field": ["description", "seed"], "left": [SENTENCE, None], "right": ["short", "5"]})
    print_differences(fields, "aa11", "bb22")
    assert capsys.readouterr().out.splitlines() == [
        "aa11 -> bb22",
        f"  description: {SENTENCE} -> short",
        "  seed: absent -> 5",
    ]
