"""Replay: the family of choices of the steps that an off-policy update learns from."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.policies.replay.replays import GeneralReplay, NStepReplay, PrioritizedReplay

Replay = Annotated[GeneralReplay | PrioritizedReplay | NStepReplay, Field(discriminator="kind"), Family("replays")]

__all__ = ["GeneralReplay", "NStepReplay", "PrioritizedReplay", "Replay"]
