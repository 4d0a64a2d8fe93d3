from datetime import UTC, date, datetime
from types import SimpleNamespace

import polars as pl
import pytest

from nvtrader_pipelines.runs.run_verdict import Claim, read_verdicts, run_verdict
from nvtrader_pipelines.storage.tables import EVALUATIONS, SCOREBOARD, VALIDATION
from tests.storage.table_rows import conform

RUN = SimpleNamespace(run_id="1" * 16, kind="walk_forward", status="done", deleted_at=None)
DELETED = SimpleNamespace(**{**vars(RUN), "deleted_at": datetime(2024, 1, 2, tzinfo=UTC)})
SHARPE = {"sharpe": 1.0, "sharpe_low": 0.2, "sharpe_high": 1.8}
DIFFERENCE = {"sharpe_difference": 0.3, "sharpe_difference_low": 0.1, "sharpe_difference_high": 0.5}


def figures(**changes):
    """Rows of a verdict in two periods: the policy, its best baseline and 1/N."""
    policy = {"policy": "mine", "kind": "ensemble", "best_baseline": "mean_cvar", **SHARPE, **DIFFERENCE, **changes}
    baselines = [{"policy": name, "kind": "baseline", "sharpe": 0.7} for name in ("mean_cvar", "equal_weight")]
    rows = [{"period": period, **row} for period in ("all", "from_2019") for row in (policy, *baselines)]
    return conform(EVALUATIONS, pl.DataFrame(rows, infer_schema_length=None))


@pytest.fixture
def validated(store):
    """Function that writes the validation of the run with a deflated probability."""

    def write(probability):
        row = {"run_id": RUN.run_id, "period": "from_2019", "against": "best_baseline", "reference": "mean_cvar"}
        numbers = {"sharpe": 0.8, "deflated_sharpe": probability, "n_trials": 3, "note": "too short"}
        rows = conform(VALIDATION, pl.DataFrame([row | numbers]))
        store.tables.replace(VALIDATION, rows, {"run_id": [RUN.run_id]})
        return store

    return write


@pytest.mark.parametrize(
    ("probability", "claim"), [(0.96, "beats"), (0.94, "is not shown to beat"), (None, "is not shown to beat")]
)
def test_verdict_claims_only_what_survives_deflation(validated, probability, claim):
    verdict = run_verdict(validated(probability), RUN, figures())
    assert verdict.startswith(f"mine {claim} its best baseline, mean_cvar, reported period from 2019: ")
    for text in ("1.00 [0.20, 1.80]", "+0.30 [+0.10, +0.50]", "equal_weight has 0.70"):
        assert text in verdict
    assert (
        "too short" if probability is None else f"probability {probability} (the check asks for at least 0.95)"
    ) in verdict


def test_verdict_of_a_replay_is_not_deflated(store):
    replay = SimpleNamespace(run_id="2" * 16, kind="replay", status="done", deleted_at=None)
    assert run_verdict(store, replay, figures()).endswith("not deflated: a replay run is no trial")


def test_verdict_of_short_window_names_the_minimum_and_claims_nothing(store):
    assert run_verdict(store, RUN, figures(n_sessions=6)) == (
        "no verdict: too short for annualized figures: 6 of 63 sessions"
    )


def test_verdict_without_figures_or_baseline_says_so(store):
    failed = SimpleNamespace(run_id="3" * 16, kind="walk_forward", status="failed", deleted_at=None)
    assert run_verdict(store, failed, figures().clear()) == "no verdict yet: the run is failed"
    alone = figures(best_baseline=None, **dict.fromkeys(DIFFERENCE))
    assert run_verdict(store, RUN, alone).startswith("mine has no baseline to beat")


def test_verdict_of_a_deleted_run_says_deleted(store):
    assert run_verdict(store, DELETED, figures().clear()) == "no verdict: the run is deleted"
    assert run_verdict(store, DELETED, figures()).startswith(
        "the run is deleted, its verdict remains; mine is not shown"
    )


def test_verdict_before_the_judgement_names_the_command_that_deflates(store):
    assert run_verdict(store, RUN, figures()).endswith("not deflated yet: `nvtrader materialize` validates all runs")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("openings", "claim"), [([1.2, 1.0], "beats"), ([0.6, 1.0], "is not shown to beat"), (None, "beats")]
)
def test_verdict_claims_nothing_that_another_opening_turns_around(validated, openings, claim):
    store, window = validated(0.96), {"first_session": date(2019, 1, 2), "last_session": date(2020, 12, 31)}
    board = [
        {"contest": "c", "entrant": "mine", "sharpe": 1.0, "openings": openings, **window},
        {"contest": "c", "entrant": "mean_cvar", "sharpe": 0.7, "openings": [0.7, 0.7], **window},
    ]
    store.tables.replace(SCOREBOARD, conform(SCOREBOARD, pl.DataFrame(board)), {})
    rows = figures().with_columns(pl.lit(day).alias(name) for name, day in window.items())
    assert run_verdict(store, RUN, rows).startswith(f"mine {claim} its best baseline")


@pytest.mark.slow
def test_verdicts_of_all_runs_claim_by_their_own_reported_periods(validated):
    store = validated(0.96)
    other = figures().filter(period="all").with_columns(run_id=pl.lit("2" * 16))  # reports no period of its own
    rows = pl.concat([figures().with_columns(run_id=pl.lit(RUN.run_id)), other])
    store.tables.replace(EVALUATIONS, rows.with_columns(spec_hash=pl.lit("a")), {})
    verdicts = read_verdicts(store)
    assert [verdict.period for _, verdict in sorted(verdicts.items())] == ["from_2019", "all"]
    assert [verdict.claim for _, verdict in sorted(verdicts.items())] == [Claim.BEATS, Claim.NOT_SHOWN]
