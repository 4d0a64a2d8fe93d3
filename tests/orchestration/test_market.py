"""The market job on homes of its own: what is wrong stops where it must, and only there."""

import dagster as dg
import polars as pl
import pytest

from nvtrader_pipelines.market.sources import SourceUnavailable
from nvtrader_pipelines.orchestration import rebalance_steps
from nvtrader_pipelines.orchestration.assets import bronze, gold, silver
from nvtrader_pipelines.orchestration.partitions import RANGE_START, whole_history_tags
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import CLEAN_BARS, MARKET_PANEL, QUARANTINE
from tests.homes import (
    check_outcomes,
    copy_home,
    materialized_assets,
    run_job,
    run_market,
    small_home,
    step_errors,
)
from tests.markets import synthetic_bars

pytestmark = pytest.mark.slow

CASES = [
    # module, function whose result is spoilt, how, the check that sees it, the first asset that must not be made
    (silver, "clean", ("good", pl.col("high") * 0.5), "silver/clean_bars:schema", "gold/returns"),
    (silver, "clean", ("refused", pl.lit("Hear say!").alias("rule")), "silver/quarantine:schema", None),
    (gold, "bar_returns", ("all", pl.lit(-2.0).alias("close_return")), "gold/returns:schema", "gold/features"),
    (
        gold,
        "bar_returns",
        ("all", pl.lit(float("inf")).alias("overnight_return")),
        "gold/returns:no_nan",
        "gold/features",
    ),
    (
        gold,
        "compute_features",
        ("all", pl.lit(2016, pl.Int32).alias("year")),
        "gold/features:schema",
        "gold/market_panel",
    ),
    (
        gold,
        "compute_features",
        ("all", pl.lit(float("-inf")).alias("return_5")),
        "gold/features:no_nan",
        "gold/market_panel",
    ),
]

MERGED = {"silver/clean_bars:schema", "gold/features:no_nan"}  # cases before a merge; the others nightly


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = small_home(tmp_path_factory.mktemp("market") / "home")
    with (home.landing / "prices.csv").open("a") as file:
        file.write("AAA,2015-01-03,1,1,1,1,1,1\n")  # a Saturday: one row for the quarantine
    return home


def spoilt(result, part, change):
    """The function's frame, or one of its two, with a column changed."""
    if part == "all":
        return result.with_columns(change)
    good, refused = result
    return (good.with_columns(change), refused) if part == "good" else (good, refused.with_columns(change))


@pytest.mark.parametrize(
    ("module", "function", "spoil", "check", "stopped"),
    [pytest.param(*case, id=case[3], marks=[] if case[3] in MERGED else [pytest.mark.nightly]) for case in CASES],
)
def test_failed_blocking_check_stops_downstream(home, instance, monkeypatch, module, function, spoil, check, stopped):
    honest = getattr(module, function)
    monkeypatch.setattr(module, function, lambda *given, **named: spoilt(honest(*given, **named), *spoil))
    finished = run_market(home, instance)
    assert not finished.success
    assert not check_outcomes(finished)[check]
    assert stopped not in materialized_assets(finished)


@pytest.fixture(scope="module")
def corrected(home, instance):
    """Run of the home that the blocked runs have left."""
    return run_market(home, instance)


def test_run_succeeds_after_a_blocked_table_is_corrected(home, corrected):
    assert corrected.success, step_errors(corrected)
    assert all(check_outcomes(corrected).values())
    assert Store(home).tables.read(QUARANTINE)["rule"].to_list() == ["unknown_session"]


@pytest.mark.usefixtures("corrected")
def test_unusable_files_and_another_basis_fail_their_checks_without_blocking(home, tmp_path, instance):
    home = copy_home(home, tmp_path / "home")
    (home.landing / "bad.csv").write_text("symbol,date,open,high,low,close,volume\nAAA,never,1,1,1,1,1\n")
    (home.landing / "empty.csv").write_bytes(b"")
    bars = synthetic_bars(n_sessions=756).filter(symbol="AAA").tail(9)
    bars.with_columns(pl.col("adj_close") / 2).write_csv(home.landing / "split.csv")
    tags = {**whole_history_tags(), RANGE_START: "2015"}  # a row without a date is of this year
    finished = run_job(home, "market", instance, tags=tags)
    assert finished.success, step_errors(finished)
    assert {name for name, passed in check_outcomes(finished).items() if not passed} == {
        "silver/clean_bars:every_file_has_a_good_bar",
        "silver/clean_bars:history_has_one_basis",
    }
    store = Store(home)
    assert len(store.tables.read(CLEAN_BARS)) == 3 * 756
    assert store.tables.read(MARKET_PANEL)["source"].to_list() == ["landing"]
    assert set(store.tables.read(QUARANTINE)["file"]) == {"prices.csv", "bad.csv", "empty.csv"}


def failing(error: Exception, times: int, then):
    """A function that fails some times before it does its work, and how often it was called."""
    calls = []

    def called(*arguments):
        calls.append(arguments)
        if len(calls) <= times:
            raise error
        return then(*arguments)

    return called, calls


def test_unavailable_source_is_retried(home, instance, monkeypatch):
    monkeypatch.setattr(rebalance_steps, "RETRY_WAIT_SECONDS", 0.0)
    ingest, calls = failing(SourceUnavailable("the source is away"), 2, bronze.ingest_market)
    monkeypatch.setattr(bronze, "ingest_market", ingest)
    finished = run_market(home, instance, asset_selection=[dg.AssetKey(["bronze", "bars"])])
    assert finished.success, step_errors(finished)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("error", "n_calls"), [(SourceUnavailable("the source is away"), 3), (ValueError("market.yaml is wrong"), 1)]
)
def test_persistent_error_fails_the_run_with_its_message(home, instance, monkeypatch, error, n_calls):
    monkeypatch.setattr(rebalance_steps, "RETRY_WAIT_SECONDS", 0.0)
    ingest, calls = failing(error, 99, bronze.ingest_market)
    monkeypatch.setattr(bronze, "ingest_market", ingest)
    finished = run_market(home, instance)
    assert not finished.success
    assert len(calls) == n_calls
    assert str(error) in step_errors(finished)
    assert materialized_assets(finished) == set()
