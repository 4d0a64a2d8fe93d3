"""Doors that take arrays: lists, pandas and polars give the same numbers, and labels are aligned or refused."""

from importlib import import_module
from inspect import isfunction, signature
from pkgutil import walk_packages
from typing import get_args

import numpy as np
import pandas as pd
import polars as pl
import pytest

from nvtrader_pipelines import evaluation
from nvtrader_pipelines.components.arrays import FloatArray, LabelError
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.weights_backtest import weights_backtest
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.policies.weights_table import WeightsPolicy, WeightsTable
from nvtrader_pipelines.portfolio import mean_risk
from nvtrader_pipelines.portfolio.mean_cvar import Constraints, MeanCvar, Objective
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline
from nvtrader_pipelines.portfolio.scenarios import Historical
from tests.markets import synthetic_panel
from tests.portfolio.pipeline.situations import situation

GENERATOR = np.random.default_rng(0)
RETURNS, OTHER, MARKET = GENERATOR.normal(0.001, 0.01, (3, 126))
TRIALS = GENERATOR.normal(0.001, 0.01, (128, 4))
WEIGHTS = GENERATOR.dirichlet(np.ones(4), 128)
COVARIANCE = np.cov(TRIALS, rowvar=False)
YEAR = 252


def drawn():
    return np.random.default_rng(1)


ARGUMENTS = {  # by parameter, for functions without an entry in CALLS
    "returns": RETURNS, "reference": OTHER, "market": MARKET, "trial": TRIALS.T, "base": TRIALS.T[:2],
    "weights": WEIGHTS, "covariance": COVARIANCE, "correlation": np.corrcoef(TRIALS, rowvar=False),
    "actions": WEIGHTS[:16], "features": TRIALS, "performance": TRIALS, "differences": RETURNS, "net_returns": RETURNS,
    "draws": RETURNS, "scores": RETURNS, "series": RETURNS, "excess": RETURNS, "values": RETURNS, "turnover": RETURNS,
    "cost": np.abs(RETURNS), "cash": np.abs(RETURNS), "gross": 1.0 + np.abs(RETURNS), "financing": np.abs(OTHER),
    "wealth": 1.0 + RETURNS, "estimates": RETURNS, "p_values": np.abs(RETURNS), "distribution": COVARIANCE,
    "periods_per_year": YEAR, "confidence_level": 0.9, "n_sessions": 126, "complexity": 0.1, "error": 0.1,
    "correction": "holm", "name": "sharpe", "at_least": 2, "seconds": np.abs(RETURNS),
}  # fmt: skip
TRIAL_MATRICES = {"backtest_overfitting", "sharpe_ratios", "mean_correlation"}
NOT_BY_POSITION = {  # rows of tables, sequences of arrays, values on a panel, or sums that callers inside make
    "profile_band", "area_under_profile", "rank_ic", "session_ics",
    "guard_telemetry", "worst_drawdowns", "sharpe_of_sums", "performance_profile", "weights_backtest",
}  # fmt: skip


def functions():
    names = (each.name for each in walk_packages(evaluation.__path__, f"{evaluation.__name__}."))
    modules = [import_module(name) for name in names]
    for module in (*modules, mean_risk):
        for name, function in vars(module).items():
            is_own = isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
            if is_own and arrays_of(function) and name not in NOT_BY_POSITION:
                yield function


def arrays_of(function):
    annotations = {name: each.annotation for name, each in signature(function).parameters.items()}
    return [name for name, kind in annotations.items() if FloatArray in (kind, *get_args(kind))]


def arguments_of(function):
    known = {**ARGUMENTS, "generator": drawn()}
    if function.__name__ == "interquartile_mean":
        known["scores"] = TRIALS[:8]
    if function.__name__ in {*TRIAL_MATRICES, *(name for name in vars(mean_risk) if name.endswith("_weights"))}:
        known["returns"] = TRIALS
    parameters = signature(function).parameters.values()
    return {each.name: known[each.name] for each in parameters if each.default is each.empty}


def pandas(array):
    return pd.Series(array) if array.ndim == 1 else pd.DataFrame(array)


def polars(array):
    return pl.Series(array) if array.ndim == 1 else pl.DataFrame(array)


def dated(array):
    labels = pd.date_range("2020-01-01", periods=len(array))
    return (
        pd.Series(array, labels)
        if array.ndim == 1
        else pd.DataFrame(array, labels, [f"name {i}" for i in range(array.shape[1])])
    )


def numbers(result):
    return np.array(list(vars(result).values()) if hasattr(result, "__dict__") else result, dtype=object)


@pytest.mark.parametrize("kind", [np.ndarray.tolist, pandas, polars], ids=["list", "pandas", "polars"])
@pytest.mark.parametrize("function", list(functions()), ids=lambda function: function.__name__)
def test_function_of_arrays_takes_lists_and_series_alike(function, kind):
    arrays = arrays_of(function)
    expected = function(**arguments_of(function))
    given = {name: kind(value) if name in arrays else value for name, value in arguments_of(function).items()}
    assert repr(numbers(function(**given))) == repr(numbers(expected))


PAIRS = [function for function in functions() if len(arrays_of(function)) > 1]


@pytest.mark.parametrize("function", PAIRS, ids=lambda function: function.__name__)
def test_labels_of_two_arguments_must_agree(function):
    arguments = arguments_of(function)
    first, second, *_ = arrays_of(function)
    frames = {name: dated(arguments[name]) for name in (first, second)}
    if frames[first].shape == frames[second].shape:
        assert repr(numbers(function(**{**arguments, **frames}))) == repr(numbers(function(**arguments)))
    with pytest.raises(LabelError):
        function(**{**arguments, **frames, second: frames[second][::-1]})


# --- back-test of weights ----------------------------------------------------------------------------------------

PANEL = synthetic_panel(60, 4)
NAMES = list(PANEL.symbols)
TABLE = np.random.default_rng(0).dirichlet(np.ones(5), 60)[:, :4]
DAYS = PANEL.sessions.astype("datetime64[ns]")
FRAME = pd.DataFrame(TABLE, DAYS, NAMES)
WITH_CASH = FRAME.assign(cash=1.0 - TABLE.sum(axis=1))
POLARS = pl.DataFrame(TABLE, NAMES)
BACKWARD = NAMES[::-1]
RIGHT = {
    "list": (TABLE.tolist(), {}),
    "pandas": (FRAME, {}),
    "columns reversed": (FRAME[BACKWARD], {}),
    "cash first": (WITH_CASH[["cash", *BACKWARD]], {}),
    "no labels": (pd.DataFrame(TABLE), {}),
    "index alone": (pd.DataFrame(TABLE, DAYS), {}),
    "columns alone": (FRAME[BACKWARD].reset_index(drop=True), {}),
    "text days": (FRAME[BACKWARD].set_axis([str(day) for day in PANEL.sessions]), {}),
    "Tokyo": (FRAME.tz_localize("Asia/Tokyo"), {}),
    "Tokyo sessions": (TABLE, {"sessions": FRAME.index.tz_localize("Asia/Tokyo")}),
    "date column": (FRAME[BACKWARD].rename_axis("date").reset_index(), {}),
    "symbols": (TABLE[:, ::-1], {"symbols": BACKWARD}),
    "same symbols": (FRAME[BACKWARD], {"symbols": BACKWARD}),
    "same sessions": (FRAME, {"sessions": PANEL.sessions}),
    "polars": (POLARS[BACKWARD], {}),
    "polars dates": (POLARS[BACKWARD].with_columns(pl.Series("date", PANEL.sessions)), {}),
    "list of series": ([row for _, row in FRAME[BACKWARD].iterrows()], {}),
    "polars sessions": (POLARS, {"sessions": pl.Series(PANEL.sessions)}),
}
REFUSED = {
    "unknown symbol": (FRAME.rename(columns={NAMES[0]: "ZZZ"}), {}),
    "two columns of a name": (FRAME.set_axis([NAMES[0], *NAMES[:3]], axis=1), {}),
    "other symbols": (FRAME[BACKWARD], {"symbols": NAMES}),
    "days reversed": (FRAME[::-1], {}),
    "a day twice": (pd.concat([FRAME[:1], FRAME]), {}),
    "other days": (FRAME.shift(freq="3650D"), {}),
    "list of series that differ": ([FRAME[BACKWARD].iloc[0], *(row for _, row in FRAME[1:].iterrows())], {}),
    "index of names": (FRAME.set_axis([f"row {i}" for i in range(60)]), {}),
    "sessions beyond": (FRAME[:30], {"sessions": PANEL.sessions[20:40]}),
    "series": (FRAME.iloc[0], {"sessions": PANEL.sessions[:1]}),
    "polars series": (POLARS[NAMES[0]], {}),
}  # fmt: skip


@pytest.mark.parametrize(("weights", "given"), RIGHT.values(), ids=RIGHT)
def test_weights_backtest_aligns_a_table_by_its_names(weights, given):
    path, expected = weights_backtest(PANEL, weights, **given), weights_backtest(PANEL, TABLE)
    np.testing.assert_allclose(path.equity, expected.equity, rtol=1e-12)


@pytest.mark.parametrize(("weights", "given"), REFUSED.values(), ids=REFUSED)
def test_weights_backtest_refuses_a_table_of_other_names(weights, given):
    with pytest.raises(ValueError):
        weights_backtest(PANEL, weights, **given)


def test_weights_backtest_takes_the_days_of_a_frame_by_sessions():
    some = PANEL.sessions[5:50:7]
    path, expected = (weights_backtest(PANEL, table, sessions=some) for table in (FRAME[2:][BACKWARD], TABLE))
    np.testing.assert_array_equal(path.equity, expected.equity)


# --- single precision --------------------------------------------------------------------------------------------

EQUAL = np.full((59, 20), 1 / 20, dtype=np.float32)
WIDE = synthetic_panel(60, 20)


@pytest.mark.parametrize("kind", [np.array, pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("has_cash", [False, True])
def test_single_precision_weights_are_scaled_back_to_one(kind, has_cash):
    table = np.column_stack([EQUAL, np.zeros(59, dtype=np.float32)]) if has_cash else EQUAL
    assert table.sum(axis=1, dtype=np.float64).min() > 1.0 + 1e-9
    path = weights_backtest(WIDE, kind(table), sessions=WIDE.sessions[:59])
    assert (path.cash >= 0.0).all()
    assert path.executed[:, :-1].sum(axis=1).max() <= 1.0 + 1e-12


def test_single_precision_columns_of_a_file_are_scaled_back_to_one():
    rows = pl.DataFrame(EQUAL, list(WIDE.symbols)).with_columns(date=pl.Series(WIDE.sessions[:59]))
    _, target = WeightsTable.from_frame(rows).decisions(WIDE)
    assert target[:, :-1].sum(axis=1).max() <= 1.0 + 1e-12


@pytest.mark.parametrize(("scale", "kind"), [(1.0, np.float64), (1.00001, np.float32)])
def test_sum_above_one_is_refused_with_its_excess(scale, kind):
    table = (np.float64(scale) * EQUAL).astype(kind)
    with pytest.raises(ValueError, match=r"first 1 \+ 1.5e-08 on" if kind is np.float64 else "first 1.00001 on"):
        weights_backtest(WIDE, table, sessions=WIDE.sessions[:59])


# --- portfolios, accounts and decisions --------------------------------------------------------------------------

CAPS, MEANS, NOW = (dict(zip("ABCD", values, strict=True)) for values in
                    ([0.5, 0.4, 0.3, 0.6], TRIALS.mean(axis=0), [0.2, 0.5, 0.2, 0.1]))  # fmt: skip


def per_name(values, order):
    return pd.Series(values)[list(order)]


@pytest.mark.parametrize("frame", [pd.DataFrame, lambda *table: pl.from_pandas(pd.DataFrame(*table))])
def test_mean_cvar_aligns_values_by_name(frame):
    def solved(order, form):
        constraints = Constraints(cap=form(CAPS, order), center=form(NOW, order), distance=0.6)
        objective = Objective(0.9, cost_bps=form({name: 5.0 * ord(name) for name in "ABCD"}, order))
        optimizer = MeanCvar("ABCD", constraints, objective)
        scenarios = frame(TRIALS, None, [*"ABCD"])[list(order)] if order != "ABCD" else TRIALS
        return optimizer.solve(scenarios, current=form(NOW, order), expected_returns=form(MEANS, order)).weights

    expected = solved("ABCD", lambda values, order: np.array(list(values.values())))
    np.testing.assert_array_equal(solved("DBCA", per_name), expected)


@pytest.mark.parametrize("order", ["ABC", "ABCE", "ABCC"])
def test_mean_cvar_refuses_values_of_other_names(order):
    with pytest.raises(LabelError):
        MeanCvar("ABCD", Constraints(cap=pd.Series(0.5, index=[*order])))
    with pytest.raises(LabelError):
        MeanCvar("ABCD").solve(pd.DataFrame(TRIALS[:, : len(order)], columns=[*order]))


def test_pipeline_aligns_a_proposal_and_held_weights_by_name():
    names, pipeline = [*NAMES, "cash"], WeightPipeline()
    proposal, held = (pd.Series(values, names) for values in ([0.1, 0.2, 0.25, 0.05, 0.4], [0.2, 0.1, 0.1, 0.1, 0.5]))
    expected = pipeline.start(PANEL)(proposal.to_numpy(), situation(PANEL, 30, held=held))
    at = situation(PANEL, 30)
    at = type(at)(PANEL, 30, held[::-1], at.drawdown, at.recent_returns, at.thresholds, at.rebal_freq)
    np.testing.assert_array_equal(pipeline.start(PANEL)(proposal[::-1], at).weights, expected.weights)
    with pytest.raises(LabelError):
        pipeline.start(PANEL)(proposal.rename({NAMES[0]: "ZZZ"}), at)


@pytest.mark.parametrize("door", [Account, Decision, lambda weights: WeightsPolicy(DAYS, weights)])
def test_door_without_names_refuses_labels_and_takes_lists(door):
    with pytest.raises(LabelError):
        door(pd.Series([0.5, 0.5], ["AAA", "cash"]))
    assert door([0.5, 0.5]) is not None


def test_scenarios_are_drawn_in_the_order_of_the_columns():
    draws = [Historical().draw(values[:, [3, 0, 1, 2]], drawn()) for values in (TRIALS, dated(TRIALS).iloc)]
    np.testing.assert_array_equal(*draws)


def test_sharpe_intervals_take_lists():
    draws = [SharpeIntervals(n_draws=50).draw(values, YEAR).values for values in (TRIALS, TRIALS.tolist())]
    np.testing.assert_array_equal(*draws)
