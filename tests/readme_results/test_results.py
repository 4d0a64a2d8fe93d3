"""Results in the README: the block is rendered from its rows."""

import datetime as dt
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.evaluation.intervals import Interval
from nvtrader_pipelines.storage.ledger.processes import processor_name
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS, OVERFITTING
from scripts.readme_results.markdown import (
    BEGIN,
    END,
    ZERO,
    describe_comparison,
    is_difference,
    render_results,
    render_summary,
    replace_block,
)
from scripts.readme_results.results import AccountRow, ComparisonRow, EarlierRow, Results, read_results

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"sharpe": "Sharpe ratio", "volatility": "volatility", "cvar": "CVaR of a session", "exposure": "exposure"}
COMPARISON = ComparisonRow(
    policy="ppo",
    other="equal_weight",
    is_other_learned=False,
    sharpe=Interval(-0.05, -0.1, -0.003),
    over_openings=(-0.07, -0.02),
    volatility=Interval(-0.017, -0.02, -0.014),
    cvar=Interval(0.0001, -0.0002, 0.0004),
    exposure=Interval(0.05, 0.04, 0.06),
    information_ratio=-0.93,
    alpha_per_year=-0.0079,
    alpha_t=-2.06,
)
FIGURES = {"cagr": 0.137, "max_drawdown": 0.19, "turnover_per_year": 3.2, "cost_per_year": 0.0051}
RESULTS = Results(
    period="from_2010",
    first_session=dt.date(2010, 1, 4),
    last_session=dt.date(2022, 12, 28),
    processor="A CPU with wide vectors",
    n_seeds=3,
    n_trials=2,
    deflated=0.79,
    overfitting=0.73,
    accounts=(
        AccountRow(
            policy="ppo",
            is_learned=True,
            is_trained=True,
            sharpe=Interval(0.95, 0.45, 1.49),
            openings=(0.98, 0.93, 0.95),
            difference=Interval(-0.04, -0.11, 0.04),
            over_openings=(-0.06, 0.01),
            **FIGURES,
        ),
        AccountRow(
            policy="equal_weight",
            is_learned=False,
            is_trained=False,
            sharpe=Interval(0.99, -0.48, 1.54),
            openings=(0.99,),
            difference=None,
            over_openings=None,
            **FIGURES,
        ),
    ),
    earlier=(
        EarlierRow(
            policy="ppo",
            sharpe=0.65,
            best_baseline="buy_and_hold",
            best_baseline_sharpe=0.66,
            anchor="anchor",
            anchor_sharpe=0.63,
        ),
    ),
    comparisons=(COMPARISON,),
)
BLOCK = """\
Reported period from 2010 (2010-01-04 to 2022-12-28; 3 seeds averaged):

| | net Sharpe [95 %] | openings | CAGR | max drawdown | turnover/y | cost/y | Sharpe less best baseline [95 %] |
|---|---|---|---|---|---|---|---|
| `ppo` | 0.95 [0.45, 1.49] | 0.93 to 0.98 | 13.7 % | 19 % | 3.2 | 0.51 % | −0.04 [−0.11, +0.04] |
| 1/N | 0.99 [−0.48, 1.54] | | 13.7 % | 19 % | 3.2 | 0.51 % | |

- `ppo` against 1/N: lower Sharpe ratio (−0.05 [−0.10, −0.00], openings −0.07 to −0.02), lower volatility (−1.7 points
  [−2.0, −1.4]), no measurable difference in CVaR of a session (+0.01 points [−0.02, +0.04]) and higher exposure (+5.0
  points [+4.0, +6.0]); alpha −0.8 % a year (t −2.06), information ratio −0.93.

No interval of the difference to the best baseline excludes zero with every opening, so none of these policies is shown
to be better or worse than its best baseline. Before 2010, on the folds that were tuned on, the Sharpe ratios were:
`ppo` 0.65, buy and hold, the best baseline, 0.66 and the anchor 0.63. The deflated information ratio of the best ranked
against its best baseline is 0.79 (the check asks for 0.95): the probability that the true ratio exceeds the expected
best of 2 trials without skill. The probability of backtest overfitting is 0.73 (at most 0.5 allowed): how often the
best in sample is in the worse half out of sample.

"""  # noqa: RUF001 - the sign of negative numbers


def test_block_is_the_markdown_of_its_rows():
    assert render_results(RESULTS).startswith(BLOCK)


@pytest.mark.parametrize(("page", "render"), [("README.md", render_summary), ("docs/results.md", render_results)])
def test_page_shows_the_block_of_its_rows(page, render):
    text = (ROOT / page).read_text()
    results = Results.model_validate_json((ROOT / "benchmarks" / "results.json").read_bytes())
    assert replace_block(text, render(results)) == text


@pytest.mark.parametrize("page", ["README.md", "docs/results.md", "docs/concepts/identity.md"])
def test_page_names_the_processor_of_the_figures(page):
    results = Results.model_validate_json((ROOT / "benchmarks" / "results.json").read_bytes())
    assert results.processor in " ".join((ROOT / page).read_text().split())


def test_difference_that_another_opening_turns_around_is_not_measurable():
    sentence = describe_comparison(COMPARISON.model_copy(update={"over_openings": (-0.07, 0.01)}))
    assert "no measurable difference in Sharpe ratio (−0.05 [−0.10, −0.00], openings −0.07 to +0.01)" in sentence  # noqa: RUF001


@given(statistic=st.sampled_from(sorted(NAMES)), ends=st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=2))
def test_difference_is_not_measurable_iff_interval_or_figure_is_zero(statistic, ends):
    low, high = sorted(ends)
    found = Interval((low + high) / 2.0, low, high)
    sentence = describe_comparison(COMPARISON.model_copy(update={"over_openings": None, statistic: found}))
    says_none = f"no measurable difference in {NAMES[statistic]} (" in sentence
    shown = re.search(rf"{NAMES[statistic]} \((\S+?)[ )]", sentence)
    assert shown is not None
    assert says_none is (low <= 0.0 <= high or not shown[1].strip(ZERO))
    assert "noise" not in sentence


@pytest.mark.parametrize(("bounds", "word"), [((-0.3, -0.1), "below"), ((0.1, 0.3), "above")])
def test_policy_apart_from_its_best_baseline_is_named(bounds, word):
    row = RESULTS.accounts[0].model_copy(update={"difference": Interval(0.0, *bounds), "over_openings": bounds})
    block = render_results(RESULTS.model_copy(update={"accounts": (row,)}))
    assert f"`ppo` ends {word} its best baseline" in block
    assert "No interval of the difference" not in block


@pytest.mark.parametrize("text", ["", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}{END}{BEGIN}{END}"])
def test_text_without_both_markers_once_is_refused(text):
    with pytest.raises(ValueError):
        replace_block(text, "block")


def test_block_between_the_markers_is_replaced():
    assert replace_block(f"a\n{BEGIN}\nold\n{END}\nb", "new") == f"a\n{BEGIN}\nnew\n{END}\nb"


def test_rows_are_those_of_the_tables(built_home):
    found = read_results(Store(built_home), "landing")
    assert found.processor == processor_name()
    assert [account.is_trained for account in found.accounts] == [account.is_learned for account in found.accounts]
    tables = Store(built_home).tables
    verdicts = tables.read(EVALUATIONS).filter(period="from_2017", policy="tiny")
    row = verdicts.row(0, named=True)
    (own,) = [each for each in found.accounts if each.is_learned]
    assert (found.period, found.n_seeds, found.n_trials) == ("from_2017", 3, 1)
    assert own.sharpe == Interval(row["sharpe"], row["sharpe_low"], row["sharpe_high"])
    assert {each.policy for each in found.accounts} == {
        "tiny", "equal_weight", "buy_and_hold", "minimum_variance", "mean_cvar",
    }  # fmt: skip
    (comparison,) = found.comparisons
    assert (comparison.policy, comparison.other) == ("tiny", "equal_weight")
    one = found.accounts[[each.policy for each in found.accounts].index("equal_weight")]
    assert comparison.sharpe.point == pytest.approx(own.sharpe.point - one.sharpe.point)
    choice = tables.read(OVERFITTING).filter(period="from_2017", against="best_baseline")
    assert found.overfitting == choice["probability_of_overfitting"][0]
    assert Results.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    ("bounds", "openings", "expected"),
    [((0.1, 0.5), (0.2, 0.4), True), ((0.1, 0.5), (-0.1, 0.4), False), ((0.1, 0.5), None, True),
     ((-0.1, 0.5), (0.2, 0.4), False), ((-0.5, -0.1), (-0.4, -0.2), True), ((-0.5, -0.1), (-0.4, 0.0), False)],
)  # fmt: skip
def test_difference_needs_interval_and_every_opening_on_one_side(bounds, openings, expected):
    assert is_difference(Interval(sum(bounds) / 2.0, *bounds), openings) is expected
