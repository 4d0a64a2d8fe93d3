import datetime as dt

import pytest

from nvtrader_pipelines.scoreboard.contests import (
    COMMON,
    REPORTED,
    ContestSpec,
    contests_of,
    default_contests,
    find_contest,
    read_contests,
)
from nvtrader_pipelines.storage.errors import StorageError


def test_contest_of_the_file_replaces_the_built_in_one_of_its_name(home):
    home.contests.write_text("crisis:\n  first: 2008-01-01\n  last: 2009-12-31\ncommon:\n  source: landing\n")
    found = read_contests(home)
    assert list(found) == [REPORTED, COMMON, "crisis"]
    assert found["crisis"] == ContestSpec(first=dt.date(2008, 1, 1), last=dt.date(2009, 12, 31))
    assert list(contests_of(found, "sample")) == [REPORTED, "crisis"]
    assert list(contests_of(found, "landing")) == [COMMON, "crisis"]
    assert list(default_contests(found)) == [REPORTED, COMMON]


def test_built_in_contest_of_the_sample_is_its_reported_period(home):
    found = read_contests(home)
    assert found[REPORTED].first == dt.date(2010, 1, 1)
    assert list(contests_of(found, "sample")) == [REPORTED, COMMON]
    assert list(contests_of(found, "landing")) == [COMMON]


@pytest.mark.parametrize(
    "text", ["crisis: {first: 2009-01-01, last: 2008-01-01}", "crisis: {frist: 2009-01-01}", "crisis: 2009", "- crisis"]
)
def test_invalid_contest_file_is_refused(home, text):
    home.contests.write_text(text)
    with pytest.raises(StorageError):
        read_contests(home)


def test_unknown_contest_is_refused_with_a_suggestion(home):
    with pytest.raises(StorageError, match="reported"):
        find_contest(read_contests(home), "reportd")
