import cvxpy as cp
import numpy as np
import pytest

from nvtrader_pipelines.portfolio.mean_cvar import Constraints, MeanCvar, Objective, canonical
from nvtrader_pipelines.portfolio.mean_cvar.canonical import compile_structure
from nvtrader_pipelines.portfolio.mean_cvar.model import Model, Structure, build_model
from tests.portfolio.mean_cvar.cases import drawn, names, solved

STRUCTURE = Structure(3, False, True, True, False, False, False, ())


def test_structure_compiles_once_for_all_values():
    compile_structure.cache_clear()
    for cap in (0.5, 0.6, 0.7):
        near = {"center": np.full(4, cap / 4), "distance": cap}
        MeanCvar(names(4), Constraints(cap=cap, turnover=cap, **near), Objective(cost_bps=10 * cap))
    assert compile_structure.cache_info().misses == 1


def test_model_that_is_not_dpp_is_rejected(monkeypatch):
    def absolute(structure, numbers, further):
        model = build_model(structure, numbers, further)
        cost = numbers["cost"] @ cp.abs(model.weights - numbers["current"])
        return Model(model.weights, model.turnover, model.cvar, model.volatility, model.constraints, cost)

    monkeypatch.setattr(canonical, "build_model", absolute)
    compile_structure.cache_clear()
    with pytest.raises(ValueError):
        compile_structure(STRUCTURE)


def test_changed_layout_of_cvxpy_programs_raises(monkeypatch):
    true = canonical._rhs_map
    monkeypatch.setattr(canonical, "_rhs_map", lambda *inputs: -true(*inputs))
    compile_structure.cache_clear()
    with pytest.raises(RuntimeError):
        compile_structure(STRUCTURE)


@pytest.mark.parametrize(
    ("further", "penalty"),
    [
        (lambda w: [w[0] <= cp.Parameter(name="mine", value=0.1)], 0.0),
        (lambda w: [cp.norm(w) >= 0.1], 0.0),
        (lambda w: [cp.sum(cp.exp(w)) <= 9.0], 0.0),
        (lambda w: [w <= cp.Variable(3, boolean=True), cp.norm(w) <= 1.0], 0.0),
        (lambda w: [w <= cp.Variable(3, boolean=True)], 0.5),
    ],
    ids=["parameter", "not_convex", "exponential", "integer_and_cone", "integer_and_volatility"],
)
def test_further_constraints_of_an_unsupported_kind_are_rejected(further, penalty):
    with pytest.raises(ValueError):
        MeanCvar(names(3), Constraints(further=further), Objective(volatility_penalty=penalty))


class AtLeast:
    """A further constraint that equals others, as a dataclass does, and has no hash."""

    def __init__(self, least):
        self.least = least

    def __eq__(self, other):
        return isinstance(other, AtLeast)

    __hash__ = None

    def __call__(self, weights):
        return [weights[0] >= self.least]


def test_further_constraints_are_fixed_when_the_optimizer_is_built():
    further, scenarios = AtLeast(0.5), drawn(100, 4)
    first = MeanCvar(names(4), Constraints(cap=0.9, further=further))
    further.least = 0.7
    second = MeanCvar(names(4), Constraints(cap=0.9, further=further))
    for optimizer, least in ((first, 0.5), (second, 0.7), (first, 0.5)):
        for method in ("cuts", "rockafellar_uryasev"):
            assert optimizer.solve(scenarios, method=method).weights[0] == pytest.approx(least)
        found = optimizer.reference(scenarios).solve(solver=cp.HIGHS)
        assert found == pytest.approx(optimizer.solve(scenarios).objective, rel=1e-7)


@pytest.mark.parametrize(
    "returned", [lambda w: w[0] >= 0.1, lambda w: [True], lambda w: None], ids=["one", "bool", "none"]
)
def test_further_constraints_other_than_a_sequence_are_rejected(returned):
    with pytest.raises(ValueError):
        MeanCvar(names(3), Constraints(further=returned))


def test_further_bounds_on_single_names_hold():
    limits = Constraints(further=lambda weights: [2.0 * weights[1] >= 0.9, weights[2] == 0.05, weights[0] <= 0.3])
    found = solved(drawn(100, 4), limits)
    assert found.method == "cuts"
    assert found.weights[1] >= 0.45 - 1e-9
    assert found.weights[2] == pytest.approx(0.05)
    assert found.weights[0] <= 0.3 + 1e-9
    assert found.weights.sum() == pytest.approx(1.0)


def test_linear_program_equals_that_of_cvxpy():
    generator = np.random.default_rng(1)
    parameters = canonical.build_parameters(STRUCTURE)
    model = build_model(STRUCTURE, parameters)
    for parameter in parameters.values():
        parameter.value = generator.uniform(0.5, 1.0, parameter.shape)
    data = model.problem.get_problem_data(cp.CLARABEL)[0]
    compiled = compile_structure(STRUCTURE)
    program = compiled.at({name: parameter.value for name, parameter in parameters.items()})
    np.testing.assert_allclose(program.cost, data["c"], atol=1e-12)
    np.testing.assert_allclose(program.upper[compiled.weights], parameters["cap"].value, atol=1e-12)
    np.testing.assert_allclose(program.lower[compiled.weights], parameters["floor"].value, atol=1e-12)
    expected = parameters["cost_of_current"].value
    assert program.offset == pytest.approx(float(expected))
