import datetime as dt

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.ingest import ingest
from nvtrader_pipelines.market.sources import LandedFile, LandingSource
from nvtrader_pipelines.market.tables import BARS, DELIVERIES
from tests.markets import INGESTED_AT, csv_file, synthetic_bars


def delivery_of(file):
    (delivery,) = LandingSource().deliveries([file])
    return delivery


def text_file(*rows):
    return LandedFile("p.csv", "\n".join(["symbol,date,close", *rows]).encode())


def test_bronze_rows_hold_delivered_text_with_file_and_line():
    ingested = ingest(delivery_of(text_file("aapl ,2020-01-02, 1.50")), None, INGESTED_AT, NEW_YORK)
    row = ingested.bars.row(0, named=True)
    assert (row["symbol"], row["close"], row["open"]) == ("aapl ", " 1.50", None)
    assert (row["source"], row["file"], row["line"], row["year"]) == ("landing", "p.csv", 2, 2020)
    assert row["ingested_at"] == INGESTED_AT


def test_ingested_rows_have_the_columns_of_their_tables():
    ingested = ingest(delivery_of(csv_file(synthetic_bars())), [2015], INGESTED_AT, NEW_YORK)
    assert ingested.bars.schema == BARS
    assert ingested.delivery_row.schema == DELIVERIES


def test_ingesting_year_by_year_gives_all_rows():
    delivery = delivery_of(csv_file(synthetic_bars()))
    whole = ingest(delivery, None, INGESTED_AT, NEW_YORK)
    parts = [ingest(delivery, [year], INGESTED_AT, NEW_YORK).bars for year in (2015, 2016)]
    assert [part["year"].unique().to_list() for part in parts] == [[2015], [2016]]
    assert_frame_equal(pl.concat(parts).sort("line"), whole.bars)
    assert whole.delivery_row["years"].to_list() == [[2015, 2016]]
    assert whole.delivery_row["n_rows"].to_list() == [len(whole.bars)]


@pytest.mark.parametrize("date", ["", "soon", "1812-01-02", "2999-01-02", "02/01/2020"])
def test_row_without_usable_date_belongs_to_year_of_delivery(date):
    ingested = ingest(delivery_of(text_file(f"A,{date},1")), [INGESTED_AT.year], INGESTED_AT, NEW_YORK)
    assert ingested.bars["year"].to_list() == [INGESTED_AT.year]


def test_unreadable_file_gives_no_bars_and_a_reason():
    ingested = ingest(delivery_of(LandedFile("p.csv", b"")), [2024], INGESTED_AT, NEW_YORK)
    row = ingested.delivery_row.row(0, named=True)
    assert ingested.bars.is_empty()
    assert ingested.bars.schema == BARS
    assert (row["rule"], row["n_rows"]) == ("empty_file", 0)
    assert row["reason"].startswith("the file is empty")


def test_time_of_delivery_is_stored_in_utc():
    moment = dt.datetime(2024, 1, 2, 17, tzinfo=dt.timezone(dt.timedelta(hours=-5)))
    ingested = ingest(delivery_of(text_file("A,2020-01-02,1")), None, moment, NEW_YORK)
    assert ingested.bars["ingested_at"].to_list() == [INGESTED_AT]
    assert ingested.delivery_row["ingested_at"].to_list() == [INGESTED_AT]
