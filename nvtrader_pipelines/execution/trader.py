"""The day loop of one account: execute, settle, propose, clear; every step may be killed and is finished by the next."""

from datetime import date
from typing import Protocol

from nvtrader_pipelines.envs.dynamics import Account
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Decision


class Deployed(Protocol):
    """A policy on a market, from the first session it may decide at."""

    spec: ExperimentSpec
    panel: MarketPanel
    run_id: str
    policy: str
    first: int
    seeds: tuple[int, ...]

    def decide(self, t: int, account: Account) -> Decision:
        """What is wanted at the close of session `t`, after every stage."""
        ...

    def fold_at(self, t: int) -> int:
        """The fold whose policies decide at the close of session `t`."""
        ...


class Trader:
    """One account, session by session."""

    def __init__(self, deployed: Deployed) -> None:
        self._deployed = deployed

    def open_at(self, session: date) -> None:
        """Open the account in cash at the close of a session."""
        raise NotImplementedError
