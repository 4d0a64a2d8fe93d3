import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from nvtrader_pipelines.portfolio.mean_cvar import Constraints, MeanCvar, Objective, tableau
from nvtrader_pipelines.portfolio.mean_cvar.canonical import LinearProgram
from nvtrader_pipelines.portfolio.mean_cvar.tableau import Tableau


def program(cost, rows=1):
    n = len(cost)
    return LinearProgram(
        np.array(cost, float), 0.0, np.zeros(n), np.full(n, 2.0), np.full(rows, 1.0), np.full(rows, 1.0)
    )


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_tableau_reaches_linprogs_optimum_after_each_row(seed, n_columns):
    generator = np.random.default_rng(seed)
    cost, equality = generator.integers(-3, 4, n_columns), generator.integers(0, 3, (1, n_columns))
    solver, rows = Tableau(program(cost), equality.astype(float)), np.empty((0, n_columns))
    for row in generator.integers(-3, 4, (8, n_columns)).astype(float):
        solver.add(np.arange(n_columns, dtype=np.int32), row)
        rows = np.vstack([rows, row])
        optimum = solver.solve()
        expected = linprog(cost, rows, np.zeros(len(rows)), equality, [1.0], bounds=(0.0, 2.0))
        if optimum is None:
            assert expected.status == 2
            return
        assert optimum[1] == pytest.approx(expected.fun, abs=1e-9)
        assert cost @ optimum[0] == pytest.approx(expected.fun, abs=1e-9)
        assert (rows @ optimum[0]).max() <= 2e-9


@pytest.mark.parametrize(("cost", "has_one"), [([1.0, 2.0], True), ([1.0, 1.0], False)])
def test_tableau_has_one_optimum_unless_two_columns_cost_the_same(cost, has_one):
    solver = Tableau(program(cost), np.ones((1, 2)))
    assert solver.solve()[1] == pytest.approx(1.0)
    assert solver.has_one_optimum is has_one


def test_full_tableau_leaves_the_rest_of_the_cuts_to_highs(monkeypatch):
    scenarios = np.random.default_rng(0).normal(0.001, 0.02, (600, 6))
    optimizer = MeanCvar(list("abcdef"), Constraints(cap=0.4), Objective(cost_bps=10.0))
    expected = optimizer.solve(scenarios, current=np.zeros(6))
    monkeypatch.setattr(tableau, "MAX_ADDED", 3)
    solution = optimizer.solve(scenarios, current=np.zeros(6))
    assert solution.n_iterations > 3
    assert solution.objective == pytest.approx(expected.objective, rel=1e-7)
