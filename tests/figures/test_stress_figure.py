import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.stress.verdict import summary
from nvtrader_pipelines.evaluation.verdict_tables import STRESS
from nvtrader_pipelines.figures import stress_figures
from nvtrader_pipelines.figures.stress_figure import MEANING, stress_figure
from tests.figures.pictures import pixels

pytestmark = pytest.mark.slow

ACCOUNTS = [("tiny/seed-0", "policy"), ("tiny", "ensemble"), ("equal_weight", "baseline"), ("mean_cvar", "baseline")]
SCENARIOS = [
    ("unstressed", "value"),
    ("gap_20_percent", "value"),
    ("block_bootstrap", "median"),
    ("block_bootstrap", "worst_5_percent"),
    ("block_bootstrap", "worst"),
    ("historic_2000-2002", "value"),
]


def table(n_accounts=4, loss=0.2):
    generator = np.random.default_rng(0)
    rows = [
        {
            "policy": policy,
            "kind": kind,
            "scenario": scenario,
            "statistic": statistic,
            "total_return": None if "historic" in scenario else loss * generator.normal(),
            "max_drawdown": None if "historic" in scenario else loss * generator.random(),
            "note": "tested never" if "historic" in scenario else None,
        }
        for policy, kind in ACCOUNTS[:n_accounts]
        for scenario, statistic in SCENARIOS
    ]
    return pl.DataFrame(rows, schema_overrides=STRESS).select(
        pl.lit(None, dtype).alias(name) if name not in rows[0] else name for name, dtype in STRESS.items()
    )


@pytest.fixture(scope="module")
def drawn():
    """The figure of the table."""
    return stress_figure(table(), "tiny").png()


def test_each_measure_has_a_slide_sized_figure(tmp_path):
    figures = {name: picture.png() for name, picture in stress_figures(table(), "tiny", "a note").items()}
    assert set(figures) == set(MEANING)
    assert figures["total_return"] != figures["max_drawdown"]
    for png in figures.values():
        assert pixels(png, tmp_path).shape[:2] == (900, 1599)


def test_equal_tables_give_equal_bytes(drawn):
    assert drawn == stress_figure(table(), "tiny").png()
    assert drawn != stress_figure(table(n_accounts=3), "tiny").png()


def test_resampled_scenario_draws_only_the_worst_five_percent(drawn):
    others = pl.col("statistic").is_in(["median", "worst"])
    changed = table().with_columns(total_return=pl.when(others).then(-9.0).otherwise(pl.col("total_return")))
    assert stress_figure(changed, "tiny").png() == drawn
    five = pl.col("statistic") == "worst_5_percent"
    changed = table().with_columns(total_return=pl.when(five).then(-0.9).otherwise(pl.col("total_return")))
    assert stress_figure(changed, "tiny").png() != drawn


def test_table_without_losses_or_known_cells_is_drawn():
    assert stress_figure(table(loss=0.0), "tiny").png()
    assert stress_figure(table().filter(pl.col("total_return").is_null()), "tiny").png()


def test_summary_drops_single_seeds_and_keeps_notes():
    shown = summary(table())
    assert set(shown["policy"]) == {"tiny", "equal_weight", "mean_cvar"}
    assert shown.filter(scenario="historic_2000-2002")["note"].unique().to_list() == ["tested never"]
    assert "kind" not in shown.columns
