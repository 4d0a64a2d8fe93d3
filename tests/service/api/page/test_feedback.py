import datetime as dt
import re

import polars as pl
import pytest

from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.sections.feedback import read_feedback
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import DPO_CHECKS, PREFERENCE_PAIRS
from tests.homes import copy_home

pytestmark = pytest.mark.slow


@pytest.fixture
def store(built_home, tmp_path):
    return Store(copy_home(built_home, tmp_path / "home"))


def shown(store):
    """Words of the part on tuned policies."""
    part = read_feedback(Context(store, "ann")).parts["tuning"]
    return " ".join(re.sub(r"<[^>]+>", " ", part).split())


def write_pairs(store, parts):
    rows = [
        {
            "spec_hash": "s",
            "run_id": "r" * 16,
            "part": part,
            "session": dt.date(2020, 1, 1 + 7 * day),
            "source": "person",
        }
        for day, part in enumerate(parts)
    ]
    store.tables.replace(PREFERENCE_PAIRS, pl.DataFrame(rows, schema=PREFERENCE_PAIRS.schema), {})


def test_home_without_pairs_says_where_they_come_from(store):
    store.tables.replace(PREFERENCE_PAIRS, pl.DataFrame(schema=PREFERENCE_PAIRS.schema), {})
    assert "nvtrader preferences pairs" in shown(store)


def test_pairs_say_what_they_can_tell_before_anything_is_tuned(store):
    write_pairs(store, ["train", "train", "stop", "report", "report"])
    text = shown(store)
    assert "Preference pairs 5 2 to train on, 5 from people" in text
    assert "Held-out decisions 2" in text
    assert "no policy was tuned yet" in text


def test_last_check_is_shown_with_its_interval(store):
    write_pairs(store, ["train", "report"])
    rows = [
        {
            "spec_hash": "s",
            "run_id": f"{n}" * 16,
            "experiment": "tiny-dpo",
            "checked_at": dt.datetime(2024, 1, n, tzinfo=dt.UTC),
            "start": "r" * 16,
            "auc": 0.5 + 0.01 * n,
            "auc_low": 0.45,
            "auc_high": 0.6,
            "sentence": f"verdict <b>{n}</b>",
        }
        for n in (2, 1)
    ]
    store.tables.replace(DPO_CHECKS, pl.DataFrame(rows, schema=DPO_CHECKS.schema), {})
    text = shown(store)
    assert "Hold-out AUC 0.52 [0.45, 0.60]; 0.50 is chance" in text
    assert "tiny-dpo: verdict &lt;b&gt;2&lt;/b&gt;." in text
