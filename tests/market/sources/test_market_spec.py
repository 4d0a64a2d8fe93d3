import pytest
from pydantic import ValidationError

from nvtrader_pipelines.market.calendar import NEW_YORK, TradingCalendar
from nvtrader_pipelines.market.sources import LandedFile, MarketSpec

COINS = {"kind": "landing", "name": "coins", "calendar": "24/7"}
FILES = [LandedFile(name, b"") for name in ("A.csv", "coins/B.csv", "dow/C.csv", "coins/old/D.csv", "series/vix.csv")]


def market(*sources):
    return MarketSpec.model_validate({"sources": sources})


def delivered(*sources):
    return [(delivery.source, delivery.file) for delivery in market(*sources).deliveries(FILES)]


def test_source_without_name_and_calendar_is_that_of_its_kind_in_new_york():
    spec = MarketSpec()
    assert [source.name for source in spec.sources] == ["sample", "landing"]
    assert {spec.calendars.of(source.name) for source in spec.sources} == {NEW_YORK}


def test_named_source_has_its_own_calendar():
    assert market({"kind": "landing"}, COINS).calendars.of("coins") == TradingCalendar("24/7")


def test_files_of_a_folder_belong_to_the_source_it_names():
    assert delivered({"kind": "landing"}, COINS) == [
        ("landing", "A.csv"),
        ("landing", "dow/C.csv"),
        ("coins", "coins/B.csv"),
        ("coins", "coins/old/D.csv"),
    ]


def test_files_of_no_source_are_not_delivered():
    assert delivered(COINS) == [("coins", "coins/B.csv"), ("coins", "coins/old/D.csv")]


def test_files_of_a_dropped_source_do_not_become_those_of_landing():
    kept = market({"kind": "landing"}).deliveries(FILES, {"coins/B.csv", "coins/old/D.csv"})
    assert [delivery.file for delivery in kept] == ["A.csv", "dow/C.csv"]


@pytest.mark.parametrize(
    "sources",
    [
        [COINS, COINS],
        [{**COINS, "calendar": "XNYC"}],
        [{**COINS, "name": "../coins"}],
        [{**COINS, "name": "series"}],
        [{"kind": "sample", "name": "other"}],
    ],
)
def test_source_that_cannot_be_told_from_others_is_refused(sources):
    with pytest.raises(ValidationError):
        market(*sources)
