import polars as pl
import pytest

from nvtrader_pipelines.evaluation.prudex import Compass
from nvtrader_pipelines.figures import prudex_figures
from nvtrader_pipelines.figures.prudex_compass import compass_figure
from nvtrader_pipelines.figures.prudex_extremes import extremes_figure
from nvtrader_pipelines.figures.prudex_palette import PALETTE, experiment_colors, styles, with_hidden
from nvtrader_pipelines.figures.prudex_reliability import rank_figure
from tests.evaluation.prudex.records import compass_of_two
from tests.figures.pictures import pixels

pytestmark = pytest.mark.slow
FIVE = {"compass", "pride_star", "performance_profile", "rank_distribution", "extreme_markets"}


@pytest.fixture(scope="module")
def compass():
    return compass_of_two()


@pytest.fixture(scope="module")
def figures(compass):
    return {name: picture.png() for name, picture in prudex_figures(compass).items()}


def test_there_are_the_five_charts_and_two_of_what_was_held(figures):
    assert set(figures) == FIVE | {"actions", "weights"}


def test_prudex_figures_fill_the_slide_with_free_edges(figures, tmp_path):
    for name, png in figures.items():
        found = pixels(png, tmp_path)
        assert found.shape[:2] == (900, 1599), name
        assert all((edge == 1.0).all() for edge in (found[:5], found[-5:], found[:, :5], found[:, -5:])), name
        assert (found[100:800] < 1.0).mean() > 0.002, name


def test_a_picture_is_the_same_twice(compass, figures):
    assert compass_figure(compass.table, note=compass.note).png() == figures["compass"]


def test_a_better_score_moves_the_picture(compass, figures):
    better = pl.when(pl.col("policy") == "ppo").then(pl.col("score") + 5.0).otherwise("score")
    assert compass_figure(compass.table.with_columns(score=better), note=compass.note).png() != figures["compass"]


def test_without_rows_there_are_pictures_without_lines(compass):
    frames = (compass.table, compass.profiles, compass.ranks, compass.plane, compass.heat)
    assert len(prudex_figures(Compass(*(frame.clear() for frame in frames), note=""))) == 7


def many(table, n):
    """The table with one experiment n times under other names, the later the better."""
    one = table.filter(pl.col("policy") == "ppo")
    copies = [one.with_columns(policy=pl.lit(f"copy-{i}"), score=pl.lit(5.0 * i)) for i in range(n)]
    return pl.concat([table.filter(pl.col("kind") == "baseline"), *copies])


def test_prudex_figures_show_best_six_experiments(compass):
    table = many(compass.table, 9)
    assert list(experiment_colors(table)) == [f"copy-{i}" for i in (8, 7, 6, 5, 4, 3)]
    assert len(set(experiment_colors(table).values())) == len(PALETTE)
    assert with_hidden(table, "survivorship bias") == (
        "3 experiments with lower scores are in evaluation.prudex only; survivorship bias"
    )
    assert with_hidden(compass.table, None) is None


def test_no_two_policies_look_alike(compass):
    drawn = styles(compass.table)
    assert [style.policy for style in drawn[2:]] == ["equal_weight", "buy_and_hold", "minimum_variance"]
    assert len({(style.color, str(style.dashes)) for style in drawn}) == len({style.shade for style in drawn}) == 5


def test_the_lightest_baseline_is_seen_on_white(compass):
    baseline = compass.table.filter(pl.col("policy") == "buy_and_hold")
    more = [baseline.with_columns(policy=pl.lit(f"rule_{i}")) for i in range(6)]
    shades = [style.shade for style in styles(pl.concat([compass.table, *more])) if style.kind == "baseline"]
    assert max(int(shade[1:3], 16) for shade in shades) <= 0.72 * 255 + 1


def extremes(table, value):
    mine = (pl.col("policy") == "ppo") & (pl.col("statistic") == "sharpe:covid_crash")
    covered = pl.when(pl.col("statistic").str.ends_with(":covid_crash")).then(0.5).otherwise("value")
    return extremes_figure(table.with_columns(value=pl.when(mine).then(value).otherwise(covered))).png()


def test_what_has_no_number_does_not_look_like_nothing_earned(compass):
    assert extremes(compass.table, None) != extremes(compass.table, 0.0)


def test_ranks_of_those_who_are_not_drawn_are_in_the_key(compass):
    renamed = pl.when(pl.col("policy") == "ppo").then(pl.lit("hidden")).otherwise("policy")
    there = compass.table.filter(pl.col("policy") != "ppo")
    assert (
        rank_figure(compass.ranks.with_columns(policy=renamed), there).png()
        != rank_figure(compass.ranks.filter(pl.col("policy") != "ppo"), there).png()
    )
