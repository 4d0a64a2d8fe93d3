"""Agents of worlds other than portfolios."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.policies.world_agents.closed_forms import (
    AlmgrenChrissAgent,
    AvellanedaStoikovAgent,
    CarteaJaimungalAgent,
)
from nvtrader_pipelines.policies.world_agents.deepscalper import DeepScalperAgent
from nvtrader_pipelines.policies.world_agents.eteo import EteoAgent
from nvtrader_pipelines.policies.world_agents.hft_ddqn import HftDdqnAgent
from nvtrader_pipelines.policies.world_agents.opd import OpdAgent

WorldAgent = Annotated[
    AlmgrenChrissAgent
    | DeepScalperAgent
    | EteoAgent
    | OpdAgent
    | AvellanedaStoikovAgent
    | CarteaJaimungalAgent
    | HftDdqnAgent,
    Field(discriminator="kind"),
]

__all__ = ["WorldAgent"]
