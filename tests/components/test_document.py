import datetime as dt

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pydantic import ValidationError

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema
from nvtrader_pipelines.components.document import frame_of, row_model, rows_of
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
