"""Settings of a back-test on an engine, as people choose them at every door."""

from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.text import Flags


class BacktestSettings(Component):
    """Engine, market, window and picture of a back-test."""

    engine: Annotated[str, Field(description="Engine of `nvtrader components engines`; default: event_driven.")] = (
        "event_driven"
    )
    timing: Annotated[
        str | None, Field(description="Sizes target weights: next, at the decision's close, or next_open, at the fill.")
    ] = None
    whole_shares: Annotated[bool, Field(description="Trade whole shares.")] = False
    agent: Annotated[
        str | None, Field(description="Policy that a strategy asks as `rl_agent`, on the policy's market.")
    ] = None
    source: Annotated[
        str | None, Field(description="Market of a strategy; default: the first ingested. A policy has its own.")
    ] = None
    first: Annotated[
        date | None, Field(description="First day; default: a policy's first test session."), Flags(("--from",))
    ] = None
    last: Annotated[date | None, Field(description="Last day; default: the market's."), Flags(("--to",))] = None
    output: Annotated[
        Path | None,
        Field(description="Picture of equity to write, .png or .svg; default: none."),
        Flags(("--output", "-o")),
    ] = None
