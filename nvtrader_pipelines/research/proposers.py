"""Proposers of a search: samplers of Optuna, each seeded anew for every proposal."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family


class OptunaProposer(Component):
    """Tree-structured Parzen estimator over all knobs together.

    Source: Bergstra et al. (2011), as Optuna's `TPESampler`.
    """

    kind: Literal["optuna"] = "optuna"
    aliases: ClassVar[tuple[str, ...]] = ("tpe",)


class RandomProposer(Component):
    """Values drawn independently and uniformly, on a log scale where the knob has one."""

    kind: Literal["random"] = "random"


Proposer = Annotated[OptunaProposer | RandomProposer, Field(discriminator="kind"), Family("proposers")]
