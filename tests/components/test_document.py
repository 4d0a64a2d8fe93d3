import datetime as dt

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pydantic import Field, ValidationError

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema
from nvtrader_pipelines.components.document import Document, frame_of, row_model, rows_of
from nvtrader_pipelines.desk.plan_queries import ListedPlan, list_plans
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.runs.experiment_list import ListedExperiment, list_experiments
from nvtrader_pipelines.runs.run_document import ListedRun
from nvtrader_pipelines.runs.run_queries import list_runs
from tests.service.cli.sample_plans import TURNOVER, append_plan, plan
from tests.storage.ledger.run_rows import SPEC, run_row

SCHEMA = TableSchema(
    Column("session", pl.Date, "session"),
    Column("at", UTC_TIME, "time"),
    Column("openings", pl.List(pl.Float64), "ratios"),
)
VALUES = {"session": dt.date(2024, 1, 2), "at": dt.datetime(2024, 1, 2, 21, 30, tzinfo=dt.UTC), "openings": [0.5, 1.0]}


class SampleRow(row_model(SCHEMA)):
    """Row of every kind of column."""


def test_rows_of_a_frame_are_its_values_and_nulls():
    frame = pl.DataFrame([VALUES, dict.fromkeys(VALUES)], schema=SCHEMA)
    rows = rows_of(SampleRow, frame)
    assert_frame_equal(frame_of(rows), frame)
    assert rows[0].model_dump(mode="json") == {
        "session": "2024-01-02",
        "at": "2024-01-02T21:30:00Z",
        "openings": [0.5, 1.0],
    }


def test_row_model_has_the_meaning_of_its_columns_and_is_frozen():
    properties = SampleRow.model_json_schema()["properties"]
    assert {name: each["description"] for name, each in properties.items()} == {
        column.name: column.doc for column in SCHEMA.columns
    }
    with pytest.raises(ValidationError):
        SampleRow.model_validate(VALUES).session = None


def test_listed_rows_have_every_column_of_their_lists(store):
    ledger = store.ledger
    ledger.register(ExperimentSpec(name="other"))
    ledger.begin(run_row(ledger, SPEC, run_id="aa11" + "0" * 12, kind="walk_forward"))
    append_plan(store.home, plan(), TURNOVER)
    lists = {
        ListedRun: list_runs(store),
        ListedExperiment: list_experiments(store, everything=True)[0],
        ListedPlan: list_plans(store.audit.events()),
    }
    for model, frame in lists.items():
        assert frame_of(rows_of(model, frame)).to_dicts() == frame.to_dicts() != []
        assert set(model.model_fields) == set(frame.columns)


class Sample(Document):
    """Document with facts and rows."""

    name: str
    note: str | None = None
    rows: tuple[SampleRow, ...] = ()
    others: tuple[SampleRow, ...] = ()
    drawn: tuple[SampleRow, ...] = Field(default=(), exclude=True)


def test_frame_of_a_document_is_its_first_rows_or_those_named():
    row = SampleRow.model_validate(VALUES)
    sample = Sample(name="a", rows=(row,), others=(row, row))
    assert_frame_equal(sample.frame(), frame_of([row]))
    assert len(sample.frame("others")) == 2
    assert Sample(name="a").frame().schema.names() == SCHEMA.names()
    assert row.frame().to_dicts() == [VALUES]
    with pytest.raises(ValueError, match="rows, others"):
        sample.frame("name")


def test_html_of_a_document_escapes_text_and_leaves_out_unset_fields():
    row = SampleRow.model_validate(VALUES)
    html = Sample(name="<b>" + "a & " * 100, rows=(row,), drawn=(row,))._repr_html_()
    assert "<th>name</th><td>&lt;b&gt;a &amp; a" in html
    assert (html.count("2024-01-02"), "note" in html, "drawn" in html) == (2, False, False)
    assert len(html) < 2_000


def test_rows_of_a_union_are_of_the_member_with_the_columns():
    frame = pl.DataFrame([VALUES], schema=SCHEMA)
    assert type(rows_of(Sample | SampleRow, frame)[0]) is SampleRow
