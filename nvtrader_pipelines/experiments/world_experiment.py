"""Experiment in a world: a frozen document, identified by its content, and its plan on a market."""

import hashlib
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from nvtrader_pipelines.components.text import ID_LENGTH, Name, Text
from nvtrader_pipelines.experiments.code_digest import world_code
from nvtrader_pipelines.experiments.spec import MarketChoice, Seed
from nvtrader_pipelines.experiments.versioned import Versioned
from nvtrader_pipelines.market.panel import Window, panel_digest
from nvtrader_pipelines.policies.world_agents import WorldAgent
from nvtrader_pipelines.policies.world_agents.base import WorldTask
from nvtrader_pipelines.worlds.book_history import BookHistory
from nvtrader_pipelines.worlds.book_trading import BookTrading
from nvtrader_pipelines.worlds.market_making import MarketMaking
from nvtrader_pipelines.worlds.order_execution import OrderExecution
from nvtrader_pipelines.worlds.single_asset import FinAgentTrading, SingleAsset
from nvtrader_pipelines.worlds.world import Market, cut_market

World = Annotated[
    OrderExecution | SingleAsset | FinAgentTrading | MarketMaking | BookTrading, Field(discriminator="kind")
]
Days = tuple[date, date]  # first and last, both included


def _seeds(known: dict[str, Any]) -> tuple[int, ...]:
    return tuple(range(known["agent"].min_seeds if "agent" in known else 1))


class WorldExperiment(Versioned):
    """Experiment in a world: all settings that decide its result, besides data and code."""

    version_kind: ClassVar[str] = "world"

    name: Name
    description: Text = ""
    world: World
    agent: WorldAgent
    market: MarketChoice | None = None  # null in a world without a market
    train: Days | None = None  # first and last day of the training; null without a market
    test: Days | None = None  # first and last day of the test, after the training
    seeds: tuple[Seed, ...] = Field(default_factory=_seeds, min_length=1)  # from 0, as few as the agent needs

    @model_validator(mode="after")
    def _parts_suit_each_other(self) -> Self:
        self.agent.require_world(self.world)
        if len(set(self.seeds)) != len(self.seeds) or len(self.seeds) < self.agent.min_seeds:
            raise ValueError(
                f"seeds must differ, and {self.agent.kind} needs at least {self.agent.min_seeds} of them, but they are "
                f"{list(self.seeds)}"
            )
        return self

    @model_validator(mode="after")
    def _require_days_of_a_market(self) -> Self:
        needed = {"market": self.world.needs_market, "train": self.world.needs_days, "test": self.world.needs_days}
        for name, is_needed in needed.items():
            if (getattr(self, name) is not None) != is_needed:
                rule = "needs it; add it" if is_needed else "makes its own prices, or reads a book; drop it"
                raise ValueError(f"{name}: this {self.world.kind} {rule}")
        if self.train is None or self.test is None:
            return self
        for name, (first, last) in {"train": self.train, "test": self.test}.items():
            if first > last:
                raise ValueError(f"{name}: the first day must not be after the last, but {first} is after {last}")
        if self.test[0] <= self.train[1]:
            raise ValueError(
                f"test: the first day must be after the last of the training, {self.train[1]}, but is {self.test[0]}"
            )
        return self


@dataclass(frozen=True, eq=False)
class WorldPlan:
    """Experiment in a world on one state of the market; equal content gives equal ids."""

    spec: WorldExperiment
    panel: Any  # market, or history of a book, up to the last day of the test; None without days

    @classmethod
    def of(cls, spec: WorldExperiment, panel: Market | None) -> Self:
        """Plan a run on a market, of which later sessions are left out.

        Raises:
            ValueError: if the market lacks days or a symbol, or has too few sessions.
        """
        if panel is not None and spec.test is not None:
            last = _last_until(panel.sessions, spec.test[1])
            panel = cut_market(panel, last) if last >= 0 else panel
        plan = cls(spec, panel)
        spec.world.simulate(1, plan.panel, plan.train)
        spec.world.examine(plan.panel, plan.test)
        return plan

    @cached_property
    def train(self) -> Window | None:
        """First and last session of the training by position."""
        return self._window(self.spec.train)

    @cached_property
    def test(self) -> Window | None:
        """First and last session of the test by position."""
        return self._window(self.spec.test)

    def _window(self, days: Days | None) -> Window | None:
        if self.panel is None or days is None:
            return None
        session_days = self.panel.sessions.astype("datetime64[D]")
        first = int(np.searchsorted(session_days, np.datetime64(days[0])))
        last = _last_until(session_days, days[1])
        if last <= first:
            raise ValueError(
                f"{days[0]} to {days[1]} must have two sessions, or times of a book, or more of {self.panel.source}, "
                f"which has {session_days[0]} to {session_days[-1]}; choose other days"
            )
        return first, last

    @cached_property
    def panel_digest(self) -> str:
        """SHA-256 of the panel's arrays; empty without a market."""
        if isinstance(self.panel, BookHistory):
            return self.panel.digest
        return panel_digest(self.panel) if self.panel is not None else ""

    @property
    def run_id(self) -> str:
        """16 hexadecimal digits of what decides the result: spec, market and code."""
        content = (self.spec.spec_hash, self.panel_digest, world_code(self.spec))
        return hashlib.sha256("|".join(content).encode()).hexdigest()[:ID_LENGTH]

    def task(self, seed: int, resume_from: bytes | None = None) -> WorldTask:
        """Training task of a seed."""
        return WorldTask(0, seed, self.spec.world, self.spec.agent, self.train, resume_from)


def _last_until(sessions: NDArray[np.datetime64], day: date) -> int:
    """Position of the last session, or time, of a day or before it; -1 without one."""
    return int(np.searchsorted(sessions.astype("datetime64[D]"), np.datetime64(day), "right")) - 1
