"""Preview of an experiment's environment: a few steps of its first training window, without training."""

from dataclasses import dataclass
from datetime import date
from math import prod

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.actions import ChoiceAction, ResidualAction, ShareTradesAction, SimplexAction
from nvtrader_pipelines.envs.observations import (
    LookbackObservation,
    Observation,
    ObservationLayout,
    PerAssetObservation,
    RegimeObservation,
)
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel, normalize_windows
from nvtrader_pipelines.runs.registration import plan_variants
from nvtrader_pipelines.storage.store import Store

Shape = tuple[int, ...]
ZERO_ACTION = "the zero action at every step"
WEIGHTS = {
    SimplexAction: ": equal weights of names and cash",
    ResidualAction: ": the weights of the anchor",
    ChoiceAction: ": the first allowed choice",
    ShareTradesAction: ": no trade",
}


@dataclass(frozen=True)
class PreviewStep:
    """Step of a preview."""

    session: date  # of the decision
    reward: float
    reward_terms: dict[str, float]
    net_return: float  # over the step, net of costs
    cost: float  # fraction of equity paid at the fill
    turnover: float  # one-way


@dataclass(frozen=True, eq=False)
class Preview:
    """Steps of one episode, and the observations of their decisions by part."""

    decisions: str
    symbols: tuple[str, ...]
    feature_names: tuple[str, ...]
    steps: tuple[PreviewStep, ...]  # fewer than asked for if the episode ended
    observations: dict[str, NDArray[np.float32]]  # by part, (n, *shape)


def preview_environment(store: Store, spec: ExperimentSpec, n_steps: int) -> Preview:
    """Step an experiment's environment by the zero action from the start of its first training window.

    Of an ablation, the first variant is taken.

    Raises:
        StorageError: if its market has no panel.
        ValueError: if it cannot be planned, or an equity becomes NaN or infinite.
    """
    from nvtrader_pipelines.envs.simulation import PortfolioSimulation  # numba takes long to import

    plan = plan_variants(store, spec)[0]
    panel, environment = plan.panel, plan.spec.environment
    windows = normalize_windows(plan.training_window(plan.folds[0]))
    simulation = PortfolioSimulation(
        panel,
        environment,
        1,
        first=windows[0][0],
        last=windows[-1][1],
        stretches=windows,
        pipeline=plan.spec.pipeline,
    )
    simulation.rewind()  # the first window may have no room for a step
    action = np.zeros((1, environment.action.size(len(panel.symbols)).length))
    observations, steps = [], []
    for _ in range(n_steps):
        session = date.fromisoformat(str(panel.sessions[simulation.accounts.t[0]]))
        observations.append(simulation.observe()[0])
        step = simulation.step(action)
        transition = step.account.transition
        terms = {kind: float(values[0]) for kind, values in step.account.reward_terms.items()}
        amounts = (float(values[0]) for values in (transition.growth - 1.0, transition.cost, transition.turnover))
        steps.append(PreviewStep(session, float(step.reward[0]), terms, *amounts))
        if step.terminated[0] or step.truncated[0]:
            break
    parts = observation_parts(environment.observation, panel, simulation.builder.layout)
    return Preview(
        decisions=ZERO_ACTION + WEIGHTS.get(type(environment.action), ""),
        symbols=panel.symbols,
        feature_names=panel.feature_names,
        steps=tuple(steps),
        observations=_split(np.array(observations), parts),
    )


def observation_parts(observation: Observation, panel: MarketPanel, layout: ObservationLayout) -> dict[str, Shape]:
    """Shapes of an observation's parts by name, in their order."""
    n = layout.n_symbols
    window = {"returns": (layout.lookback, n)} if layout.lookback else {}
    features, account = {"features": (n, len(panel.feature_names))}, {"weights": (n + 1,), "drawdown": (1,)}
    match observation:
        case PerAssetObservation():
            from nvtrader_pipelines.envs.observations.per_asset_builder import ASSET_COLUMNS, CONTEXT_COLUMNS

            return {"names": (n, ASSET_COLUMNS), "context": (CONTEXT_COLUMNS,)}
        case LookbackObservation():
            return window | features | account
        case RegimeObservation(n_regimes=n_regimes):
            return window | features | {"slope": (1,), "regime": (n_regimes,)} | account
        case _:  # of an installed package
            return {**window, "others": (layout.length - layout.lookback * n,)}


def _split(observations: NDArray[np.float32], parts: dict[str, Shape]) -> dict[str, NDArray[np.float32]]:
    ends = np.cumsum([prod(shape) for shape in parts.values()])
    columns = np.split(observations, ends[:-1], axis=1)
    return {name: part.reshape(len(part), *shape) for (name, shape), part in zip(parts.items(), columns, strict=True)}
