"""Preference pairs as text for language models, read by the library that TRL reads them with."""

import datetime as dt
import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.preferences.pair_table import PREFERENCE_PAIR
from nvtrader_pipelines.preferences.preference_export import format_weights, trl_rows
from nvtrader_pipelines.storage.pair_files import write_export

COLUMNS = [
    *("prompt", "chosen", "rejected"),
    *("pair_id", "source", "session", "holdout", "label", "weight", "swapped"),
]
KNOWN = {"session", "symbols", "held_weights", "drawdown", "chosen_weights", "rejected_weights"}


def a_pair(n, **fields):
    row = {
        "pair_id": f"{n:016x}",
        "source": "counterfactual",
        "decision_id": None,
        "fold": 0,
        "window": "2019-01-02 to 2020-12-31",
        "session": dt.date(2020, 2, 3) + dt.timedelta(days=n),
        "outcome_session": dt.date(2020, 2, 10) + dt.timedelta(days=n),
        "part": "train",
        "holdout": False,
        "chosen": "tiny",
        "rejected": "equal_weight",
        "symbols": ["AAPL", "MSFT", "cash"],
        "held_weights": [0.052, 0.0, 0.948],
        "drawdown": 0.031,
        "chosen_weights": [0.4, 0.5, 0.1],
        "rejected_weights": [0.3335, 0.3335, 0.333],
        "chosen_outcome": 0.0173,
        "rejected_outcome": -0.0259,
        "margin": 0.0432,
        "noise": 0.0211,
        "label": 0.75,
        "weight": 2.0,
        "swapped": True,
        "observation_hash": 7,
    }
    return {**row, **fields}


def pairs_of(*rows):
    return pl.DataFrame(rows, schema=PREFERENCE_PAIR)


PAIRS = pairs_of(a_pair(2, source="person"), a_pair(1), a_pair(3, part="report", holdout=True))


@pytest.fixture
def datasets(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    return pytest.importorskip("datasets")


def percents(text):
    return {symbol: float(percent) for symbol, percent in re.findall(r"(\S+) (\d+\.\d) %", text)}


def test_text_is_the_state_at_the_close_and_both_targets():
    row = trl_rows(PAIRS).row(0, named=True)
    assert list(row) == COLUMNS
    assert row["prompt"] == (
        "Session 2020-02-04, after the close. The account holds AAPL 5.2 %, cash 94.8 %; its drawdown is 3.1 %. "
        "Which target weights should it trade to at the next fill?\n"
    )
    assert row["chosen"] == "AAPL 40.0 %, MSFT 50.0 %, cash 10.0 %"
    assert percents(row["rejected"]) == {"AAPL": 33.4, "MSFT": 33.3, "cash": 33.3}
    facts = {name: row[name] for name in COLUMNS[3:]}
    assert facts == {name: PAIRS.row(1, named=True)[name] for name in COLUMNS[3:]}


def test_held_out_pairs_are_exported_and_marked_only_on_request():
    assert trl_rows(PAIRS)["holdout"].to_list() == [False, False]
    assert trl_rows(PAIRS, with_holdout=True)["holdout"].to_list() == [False, False, True]
    assert trl_rows(PAIRS.clear()).schema == trl_rows(PAIRS).schema


def test_text_ignores_everything_unknown_at_the_close():
    other = a_pair(
        1,
        decision_id="ab",
        fold=4,
        window="w",
        outcome_session=dt.date(2030, 1, 1),
        part="stop",
        chosen="x",
        rejected="y",
        chosen_outcome=0.5,
        rejected_outcome=0.25,
        margin=0.25,
        noise=0.125,
        label=0.625,
        weight=1.0,
        swapped=False,
        observation_hash=8,
        source="person",
    )
    before = a_pair(1)
    assert {name for name in before if before[name] == other[name]} == KNOWN | {"pair_id", "holdout"}
    assert trl_rows(pairs_of(before))[:, :3].equals(trl_rows(pairs_of(other))[:, :3])


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=40), st.integers(0, 2**32 - 1))
def test_weights_as_text_are_a_portfolio_without_tiny_weights(raw, seed):
    weights = np.array(raw) ** 4 + np.random.default_rng(seed).dirichlet(np.ones(len(raw))) * 1e-2
    weights /= weights.sum()
    symbols = [f"N{n:02}" for n in range(len(weights))]
    shown = percents(format_weights(symbols, weights))
    assert list(shown) == [symbol for symbol, weight in zip(symbols, weights, strict=True) if weight >= 0.001]
    assert sum(shown.values()) == pytest.approx(100.0)
    dropped = 1.0 - sum(weight for weight in weights if weight >= 0.001)
    for symbol, percent in shown.items():
        weight = weights[symbols.index(symbol)]
        assert percent == pytest.approx(100.0 * weight / (1.0 - dropped), abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "loader"), [("jsonl", "json"), ("parquet", "parquet")])
def test_export_is_loaded_by_datasets_without_any_outcome(datasets, tmp_path, suffix, loader):
    path = tmp_path / f"pairs.{suffix}"
    write_export(trl_rows(PAIRS, with_holdout=True), path)
    loaded = datasets.load_dataset(loader, data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.column_names == COLUMNS
    assert {type(loaded[0][name]) for name in COLUMNS[:3]} == {str}
    assert loaded["label"][:] == [0.75] * 3
    assert loaded["holdout"][:] == [False, False, True]
    assert [str(session)[:10] for session in loaded["session"]] == ["2020-02-04", "2020-02-05", "2020-02-06"]
    outcomes = PAIRS.row(0, named=True)
    for text in (text for name in COLUMNS[:3] for text in loaded[name]):
        assert "2020-02-1" not in text  # sessions of the outcomes
        for name in ("chosen_outcome", "rejected_outcome", "margin", "noise", "label"):
            figure = abs(outcomes[name])
            assert not any(spelling in text for spelling in (f"{figure:g}", f"{100 * figure:.1f} %"))


@pytest.mark.parametrize("name", ["pairs.csv", "pairs"])
def test_export_of_another_suffix_is_refused(tmp_path, name):
    with pytest.raises(ValueError):
        write_export(trl_rows(PAIRS), tmp_path / name)
    assert not list(tmp_path.iterdir())
