"""Scenarios and programs shared by the tests of the optimizer."""

from dataclasses import dataclass

import numpy as np

from nvtrader_pipelines.portfolio.mean_cvar import Constraints, MeanCvar, Objective


def names(n):
    return [f"N{i}" for i in range(n)]


def drawn(n_scenarios=300, n_names=5, seed=0):
    """Fat-tailed returns with one common factor, (S, N)."""
    generator = np.random.default_rng(seed)
    common = generator.standard_t(4, (n_scenarios, 1)) * 0.006
    own = generator.standard_t(4, (n_scenarios, n_names)) * 0.008 * generator.uniform(0.5, 1.5, n_names)
    return 0.0005 + common + own


def cvar(losses, level):
    """Mean of the worst (1 - level) of the losses by sorting, the boundary counted in part."""
    ordered, size = np.sort(losses)[::-1], (1.0 - level) * len(losses)
    whole = min(int(size + 1e-9), len(losses) - 1)
    return (ordered[:whole].sum() + (size - whole) * ordered[whole]) / size


def solved(scenarios, constraints=None, objective=None, **inputs):
    return MeanCvar(names(scenarios.shape[1]), constraints, objective).solve(scenarios, **inputs)


@dataclass(frozen=True)
class Case:
    """Program whose current weights are feasible, so that it has a solution."""

    scenarios: np.ndarray
    optimizer: MeanCvar
    constraints: Constraints
    objective: Objective
    inputs: dict


def random_case(seed):
    """Draw a program of random size, terms and limits; a third have ties, a fifth short positions."""
    generator = np.random.default_rng(seed)
    n_names, n_scenarios = int(generator.integers(2, 8)), int(generator.integers(30, 150))
    scenarios = drawn(n_scenarios, n_names, seed)
    if generator.random() < 0.35:
        scenarios = scenarios.round(2)
    short = generator.random() < 0.2
    cash = float(generator.choice([0.0, 0.05]))
    current = generator.dirichlet(np.full(n_names, 2.0)) * (1.0 - cash)
    if short:
        current[0] -= 0.1
        current[1] += 0.1
    wanted = generator.random(6) < 0.4
    sectors = {f"N{i}": "a" for i in range(2)}
    constraints = Constraints(
        floor=-0.3 if short else np.minimum(current, 0.02),
        cap=np.maximum(current, generator.uniform(0.3, 1.0)),
        cash_floor=cash,
        cash_ceiling=cash + 0.2 if wanted[0] else None,
        turnover=float(generator.uniform(0.0, 0.5)) if wanted[1] else None,
        gross=float(np.abs(current).sum() + 0.2) if wanted[2] else None,
        sectors=sectors if wanted[3] else {},
        sector_caps={"a": float(current[:2].sum() + 0.05)} if wanted[3] else {},
        further=_first_near_last if wanted[4] and abs(current[0] - current[-1]) <= 0.5 else None,
    )
    objective = Objective(
        confidence_level=float(generator.uniform(0.5, 0.96)),
        risk_aversion=float(generator.uniform(0.2, 3.0)),
        cost_bps=float(generator.choice([0.0, 20.0])),
        volatility_penalty=0.5 if wanted[5] else 0.0,
    )
    inputs = {
        "current": current,
        "expected_returns": scenarios.mean(axis=0),
        "volatility_factor": generator.normal(0.0, 0.01, (n_names, 3)),
    }
    return Case(scenarios, MeanCvar(names(n_names), constraints, objective), constraints, objective, inputs)


def _first_near_last(weights):
    return [weights[0] - weights[-1] <= 0.5, weights[-1] - weights[0] <= 0.5]
