import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from nvtrader_pipelines.portfolio.mean_cvar import (
    Constraints,
    InfeasibleError,
    MeanCvar,
    Objective,
    least_distance,
    least_turnover,
    resolve_limits,
)
from tests.portfolio.mean_cvar.cases import drawn, names, solved

SECTORS = {"sectors": {"N0": "a", "N1": "a", "N2": "b"}}


def given_names(*found):
    return lambda: MeanCvar(found)


def limited(**limits):
    return lambda: MeanCvar(names(4), Constraints(**limits))


def aimed(**objective):
    return lambda: MeanCvar(names(4), objective=Objective(**objective))


MALFORMED = {
    "no_names": given_names(),
    "name_twice": given_names("A", "B", "A"),
    "floor_shape": limited(floor=np.zeros(3)),
    "cap_missing": limited(cap=np.array([1, 1, np.nan, 1])),
    "negative_cap": limited(cap=-0.1, floor=-0.2),
    "cash_order": limited(cash_floor=0.3, cash_ceiling=0.2),
    "cash_above_all": limited(cash_floor=1.2),
    "cash_missing": limited(cash_floor=np.nan),
    "turnover": limited(turnover=-0.1),
    "gross": limited(gross=np.inf),
    "sector_of_stranger": limited(sectors={"X": "a"}),
    "sector_without_names": limited(sector_caps={"a": 0.5}),
    "sector_cap": limited(**SECTORS, sector_caps={"a": np.nan}),
    "level_0": aimed(confidence_level=0.0),
    "level_1": aimed(confidence_level=1.0),
    "level_missing": aimed(confidence_level=np.nan),
    "risk_aversion": aimed(risk_aversion=0.0),
    "volatility_penalty": aimed(volatility_penalty=-1.0),
    "cost": aimed(cost_bps=-1.0),
    "cost_nan": aimed(cost_bps=np.nan),
    "cost_shape": aimed(cost_bps=np.zeros(3)),
    "level_shape": aimed(confidence_level=np.full(4, 0.9)),
    "risk_aversion_missing": aimed(risk_aversion=np.nan),
    "risk_aversion_infinite": aimed(risk_aversion=np.inf),
    "penalty_missing": aimed(volatility_penalty=np.nan),
    "distance": limited(distance=-0.1),
    "center_shape": limited(center=np.ones(3)),
    "turnover_missing": limited(turnover=np.nan),
    "turnover_shape": limited(turnover=np.ones(4)),
    "gross_missing": limited(gross=np.nan),
    "floor_missing": limited(floor=-np.inf),
    "ceiling_missing": limited(cash_ceiling=np.nan),
    "cost_missing": aimed(cost_bps=np.full(4, np.inf)),
}
UNATTAINABLE = {
    "floor_above_cap": limited(floor=0.4, cap=0.3),
    "floors": limited(floor=0.25, cash_floor=0.1),
    "caps": limited(cap=0.2, cash_floor=0.1),
    "gross": limited(gross=0.8, cash_floor=0.1),
    "sector_floors": limited(**SECTORS, floor=0.2, sector_caps={"a": 0.3}),
    "sector_caps": limited(**SECTORS, cap=0.4, sector_caps={"a": 0.2, "b": 0.1}),
}
SCENARIOS = drawn(100, 4)
MISSING = SCENARIOS.copy()
MISSING[7, 2] = np.nan
INFINITE = SCENARIOS.copy()
INFINITE[3, 1] = -np.inf
BAD_INPUTS = {
    "one_axis": (SCENARIOS[0], {}),
    "columns": (SCENARIOS[:, :3], {}),
    "missing": (MISSING, {}),
    "infinite": (INFINITE, {}),
    "tail": (SCENARIOS[:19], {}),
    "current_shape": (SCENARIOS, {"current": np.ones(5)}),
    "current_missing": (SCENARIOS, {"current": np.full(4, np.nan)}),
    "current_number": (SCENARIOS, {"current": 0.25}),
    "mean_number": (SCENARIOS, {"expected_returns": 0.1}),
    "scale": (1e200 * SCENARIOS, {}),
    "mean_scale": (SCENARIOS, {"expected_returns": np.full(4, 1e200)}),
    "mean_missing": (SCENARIOS, {"expected_returns": np.full(4, np.inf)}),
}


@pytest.mark.parametrize("build", MALFORMED.values(), ids=MALFORMED)
def test_malformed_program_is_rejected_at_construction(build):
    with pytest.raises(ValueError) as refused:
        build()
    assert not isinstance(refused.value, InfeasibleError)


@pytest.mark.parametrize("build", UNATTAINABLE.values(), ids=UNATTAINABLE)
def test_limits_without_a_portfolio_are_infeasible_at_construction(build):
    with pytest.raises(InfeasibleError):
        build()


@pytest.mark.parametrize(("scenarios", "inputs"), BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_malformed_inputs_are_rejected(scenarios, inputs):
    with pytest.raises(ValueError):
        MeanCvar(names(4)).solve(scenarios, **inputs)
    with pytest.raises(ValueError):
        MeanCvar(names(4)).reference(scenarios, **inputs)


@pytest.mark.parametrize(
    "program", [{"constraints": Constraints(turnover=0.1)}, {"objective": Objective(cost_bps=1.0)}]
)
def test_turnover_and_cost_require_current_weights(program):
    with pytest.raises(ValueError):
        MeanCvar(names(4), **program).solve(SCENARIOS)


@pytest.mark.parametrize("factor", [None, np.ones((3, 4)), np.full((4, 4), np.nan)])
def test_volatility_penalty_requires_a_covariance_factor(factor):
    with pytest.raises(ValueError):
        MeanCvar(names(4), objective=Objective(volatility_penalty=1.0)).solve(SCENARIOS, volatility_factor=factor)


def test_unknown_method_is_rejected():
    with pytest.raises(ValueError):
        MeanCvar(names(4)).solve(SCENARIOS, method="simplex")


def test_infeasible_constraints_are_listed_with_their_numbers():
    limits = Constraints(
        **SECTORS,
        cap=0.5,
        cash_ceiling=0.1,
        gross=1.0,
        center=np.full(4, 0.25),
        distance=0.2,
        sector_caps={"a": 0.3},
        further=lambda weights: [weights[2] <= 0.05],
    )
    message = (
        "the constraints contradict each other: floors that sum to 0, caps that sum to 2, cash of 0 to 0.1, "
        "a gross limit of 1, a distance of 0.2 from the center, a cap of 0.3 on sector 'a', 1 further constraints; "
        "loosen one of them"
    )
    with pytest.raises(InfeasibleError) as refused:
        MeanCvar(names(4), limits).solve(SCENARIOS)
    assert str(refused.value) == message


@pytest.mark.parametrize("seed", range(8))
def test_required_turnover_is_the_minimum_of_a_linear_program(seed):
    generator = np.random.default_rng(seed)
    current = generator.normal(0.25, 0.4, 4)
    cap, cash = 0.4, 0.1
    # variables: weights, absolute changes; minimise half the sum of the changes and of that of cash
    change = np.block([[np.eye(4), -np.eye(4)], [-np.eye(4), -np.eye(4)]])
    oracle = linprog(
        np.r_[np.zeros(4), np.full(4, 0.5)],
        A_ub=change,
        b_ub=np.r_[current, -current],
        A_eq=[[1.0] * 4 + [0.0] * 4],
        b_eq=[1.0 - cash],
        bounds=[(0.0, cap)] * 4 + [(0.0, None)] * 4,
    )
    least = oracle.fun + 0.5 * abs(1.0 - cash - current.sum())
    enough, short = least + 1e-6, least - 1e-6
    limits = {"cap": cap, "cash_floor": cash}
    assert solved(SCENARIOS, Constraints(**limits, turnover=enough), current=current).turnover <= enough + 1e-9
    with pytest.raises(InfeasibleError):
        solved(SCENARIOS, Constraints(**limits, turnover=short), current=current)


@given(seed=st.integers(0, 100_000))
def test_least_distance_is_the_minimum_of_a_linear_program(seed):
    generator = np.random.default_rng(seed)
    center, current = generator.normal(0.25, 0.3, (2, 4))
    low, high = np.sort(generator.uniform(0.0, 0.6, (2, 4)), axis=0)
    most, least = generator.uniform(low.sum(), high.sum(), 2)
    limits = {"floor": low, "cap": high, "cash_floor": 1.0 - max(most, least), "cash_ceiling": 1.0 - min(most, least)}
    free = resolve_limits(names(4), Constraints(**limits))
    budget = least_turnover(current, free) + generator.exponential(0.2)
    # variables: weights, cash, absolute changes from the center and from the current weights
    eye, none = np.eye(5), np.zeros((5, 5))
    starts = [np.append(start, 1.0 - start.sum()) for start in (center, current)]
    oracle = linprog(
        np.r_[np.zeros(5), np.full(5, 0.5), np.zeros(5)],
        A_ub=np.block(
            [[eye, -eye, none], [-eye, -eye, none], [eye, none, -eye], [-eye, none, -eye], [np.zeros(10), np.ones(5)]]
        ),
        b_ub=np.r_[starts[0], -starts[0], starts[1], -starts[1], 2.0 * budget],
        A_eq=[[1.0] * 5 + [0.0] * 10],
        b_eq=[1.0],
        bounds=[*zip(low, high, strict=True), (limits["cash_floor"], limits["cash_ceiling"]), *[(0.0, None)] * 10],
    )
    found = least_distance(center, current, resolve_limits(names(4), Constraints(**limits, turnover=budget)))
    assert found == pytest.approx(oracle.fun, abs=1e-8)
