"""Previews of an experiment's rewards and observations."""

from datetime import date
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.runs.preview import Preview

MAX_VALUES = 200  # of a part of the first observation
Value = Annotated[float, Field(allow_inf_nan=False)] | None


class RewardStep(Document):
    """Step with its reward by term."""

    session: date  # of the decision
    reward: float | None
    reward_terms: dict[str, float | None]
    net_return: float  # over the step, net of costs
    cost: float  # fraction of equity paid at the fill
    turnover: float  # one-way


class RewardPreview(Document):
    """Rewards of the first steps of an experiment's first training window; nothing was trained."""

    decisions: str  # how weights were chosen
    steps: tuple[RewardStep, ...]  # fewer than asked for if the episode ended


class ObservedPart(Document):
    """Part of an observation, with its finite values over all steps."""

    name: str
    shape: tuple[int, ...]
    minimum: Value
    mean: Value
    maximum: Value
    n_not_finite: int
    first: tuple[Value, ...]  # values of the first step, row by row; 200 at most


class ObservationPreview(Document):
    """Observations of the first steps of an experiment's first training window; nothing was trained."""

    decisions: str  # how weights were chosen
    n_steps: int  # fewer than asked for if the episode ended
    symbols: tuple[str, ...]
    feature_names: tuple[str, ...]
    parts: tuple[ObservedPart, ...]  # in the order of the observation


def reward_preview(preview: Preview) -> RewardPreview:
    """Describe the rewards of a preview."""
    return RewardPreview(
        decisions=preview.decisions, steps=tuple(RewardStep.model_validate(vars(step)) for step in preview.steps)
    )


def observation_preview(preview: Preview) -> ObservationPreview:
    """Describe the observations of a preview."""
    parts = tuple(describe_part(name, values) for name, values in preview.observations.items())
    return ObservationPreview.of(preview, n_steps=len(preview.steps), parts=parts)


def describe_part(name: str, values: NDArray[np.float32]) -> ObservedPart:
    """Describe the values (n, *shape) of a part of n observations."""
    finite = values[np.isfinite(values)].astype(float)
    statistics = [float(reduce(finite)) if len(finite) else None for reduce in (np.min, np.mean, np.max)]
    return ObservedPart(
        name=name,
        shape=values.shape[1:],
        minimum=statistics[0],
        mean=statistics[1],
        maximum=statistics[2],
        n_not_finite=values.size - finite.size,
        first=tuple(float(value) if np.isfinite(value) else None for value in values[0].ravel()[:MAX_VALUES]),
    )
