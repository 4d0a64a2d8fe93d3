"""Rows of a run in pages and thinned, on a table of two runs in several files."""

from datetime import date, timedelta
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, REWARD_DECOMPOSITION, TRAJECTORIES
from nvtrader_pipelines.storage.views.row_queries import (
    EPISODE_ROWS,
    EQUITY_ROWS,
    MAX_DRAWN,
    REWARD_ROWS,
    TRAJECTORY_ROWS,
    read_row_page,
    read_thinned_rows,
)

RUN, OTHER = (SimpleNamespace(spec_hash=digit * 64, run_id=digit * 16) for digit in "12")
N_SEEDS, N_EPISODES, N_STEPS = 3, 40, 10
CURVE = ["policy", "kind", "phase", "fold", "seed"]


def _trajectories(run, seed):
    """Steps of a seed's training; some rewards are null."""
    draw, n = np.random.default_rng(seed), N_EPISODES * N_STEPS
    step = np.arange(n) % N_STEPS
    columns = {
        "spec_hash": run.spec_hash,
        "run_id": run.run_id,
        "policy": f"ppo/seed-{seed}",
        "kind": "policy",
        "phase": "train",
        "fold": 0,
        "seed": seed or None,
        "episode": np.arange(n) // N_STEPS,
        "step": step,
        "session": [date(2020, 1, 1) + timedelta(days=int(number)) for number in step],
        "action": [[0.5, float(number)] for number in step],
        "reward": np.where(draw.random(n) < 0.1, np.nan, draw.normal(size=n)),
        "equity": 1.0 + draw.random(n),
        "drawdown": draw.random(n),
        "terminated": (step == N_STEPS - 1) & (draw.random(n) < 0.5),
        "info": "{}",
    }
    rows = pl.DataFrame(columns)
    others = [pl.lit(None).alias(name) for name in TRAJECTORIES.schema if name not in columns]
    return rows.with_columns(others).select(pl.col(name).cast(kind) for name, kind in TRAJECTORIES.schema.items())


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Store with the trajectories of two runs, a file per seed."""
    store = Store(Home(tmp_path_factory.mktemp("rows") / "home"))
    for run in (RUN, OTHER):
        for seed in range(N_SEEDS):
            keys = {"spec_hash": [run.spec_hash], "run_id": [run.run_id], "policy": [f"ppo/seed-{seed}"]}
            store.tables.replace(TRAJECTORIES, _trajectories(run, seed), keys)
    return store


@pytest.fixture(scope="module")
def rows(store):
    """Trajectories of the run."""
    return store.tables.read(TRAJECTORIES, {"run_id": [RUN.run_id]}).select(TRAJECTORY_ROWS.schema.names())


@pytest.mark.slow
@pytest.mark.parametrize("limit", [97, 400, 5000])
def test_pages_are_the_rows_of_the_table_in_order(store, rows, limit):
    pages = [read_row_page(store, TRAJECTORY_ROWS, RUN, {}, limit, after) for after in range(0, len(rows), limit)]
    assert_frame_equal(pl.concat(pages), rows)


def test_page_after_the_last_row_is_empty(store, rows):
    assert read_row_page(store, TRAJECTORY_ROWS, RUN, {}, 10, len(rows)).is_empty()
    assert read_row_page(store, EQUITY_ROWS, RUN, {}, 10, 0).schema == EQUITY_ROWS.schema


def test_filtered_rows_have_the_values(store, rows):
    equal = {"seed": 2, "phase": "train", "episode": 7}
    read = read_row_page(store, TRAJECTORY_ROWS, RUN, equal, 1000, 0)
    assert_frame_equal(read, rows.filter(seed=2, episode=7))


@pytest.mark.slow
@pytest.mark.parametrize("value", ["' OR true --", "'; DROP TABLE x; --", "$limit", "\x00", "ppo%"])
def test_hostile_filter_matches_no_row(store, value):
    assert read_row_page(store, TRAJECTORY_ROWS, RUN, {"policy": value}, 10, 0).is_empty()


@pytest.mark.parametrize("points", [50, 51, 399, 400])
def test_thinned_curve_keeps_ends_and_extremes(store, rows, points):
    thinned = read_thinned_rows(store, TRAJECTORY_ROWS, RUN, {}, points)
    assert thinned["action"].null_count() == thinned["info"].null_count() == len(thinned)
    scalars = [name for name in rows.columns if name not in ("action", "info")]
    assert thinned.join(rows, on=scalars, how="anti", nulls_equal=True).is_empty()
    by_curve = thinned.partition_by(CURVE, as_dict=True)
    for curve, whole in rows.partition_by(CURVE, as_dict=True).items():
        part = by_curve.pop(curve)
        assert 0.8 * points <= len(part) <= points
        for reduce in (pl.Series.min, pl.Series.max, pl.Series.first, pl.Series.last):
            assert reduce(part["reward"]) == reduce(whole["reward"])
        assert part["episode"].is_sorted()
    assert by_curve == {}


def test_curves_of_many_terms_share_the_rows(store):
    n, terms = 20, MAX_DRAWN // 10
    columns = {"policy": "ppo", "kind": "ensemble", "fold": 0, "step": [k for k in range(n) for _ in range(terms)]}
    names = [f"term_{k}" for _ in range(n) for k in range(terms)]
    table = pl.DataFrame({**vars(RUN), **columns, "session": None, "term": names, "contribution": 0.5})
    typed = table.select(pl.col(name).cast(kind) for name, kind in REWARD_DECOMPOSITION.schema.items())
    store.tables.replace(REWARD_DECOMPOSITION, typed, {name: [value] for name, value in vars(RUN).items()})
    assert read_thinned_rows(store, REWARD_ROWS, RUN, {}, 50).group_by("term").len()["len"].max() <= 10


@pytest.mark.slow
def test_episodes_summarize_their_steps(store, rows):
    by_hand = rows.group_by(*CURVE, "episode", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("n_steps"),
        pl.col("reward").sum(),
        pl.col("session").min().alias("first_session"),
        pl.col("session").max().alias("last_session"),
        pl.col("equity").last(),
        pl.col("drawdown").max().alias("max_drawdown"),
        pl.col("terminated").any(),
    )
    pages = [read_row_page(store, EPISODE_ROWS, RUN, {}, 50, after) for after in (0, 50, 100)]
    assert_frame_equal(pl.concat(pages), by_hand)


def test_table_of_no_home_is_empty(tmp_path):
    assert read_thinned_rows(Store(Home(tmp_path / "home")), EQUITY_ROWS, RUN, {}, 50).is_empty()
    assert EQUITY_CURVES.schema.names()[2:] == EQUITY_ROWS.schema.names()
