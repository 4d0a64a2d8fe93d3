"""Ensemble of agents: each seed of the experiment trains one member, in turn."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.agents.a2c import A2cAgent
from nvtrader_pipelines.policies.agents.ars import ArsAgent
from nvtrader_pipelines.policies.agents.cma_es import CmaEsAgent
from nvtrader_pipelines.policies.agents.crossq import CrossQAgent
from nvtrader_pipelines.policies.agents.deeptrader import DeepTraderAgent
from nvtrader_pipelines.policies.agents.differentiable_grpo import DifferentiableGrpoAgent
from nvtrader_pipelines.policies.agents.dqn import DqnAgent, QrDqnAgent
from nvtrader_pipelines.policies.agents.grouped_ppo import GroupedPpoAgent
from nvtrader_pipelines.policies.agents.investor_imitator import InvestorImitatorAgent
from nvtrader_pipelines.policies.agents.learner import MIN_SEEDS
from nvtrader_pipelines.policies.agents.maskable_ppo import MaskablePpoAgent
from nvtrader_pipelines.policies.agents.pathwise import EiieAgent, PathwiseAgent
from nvtrader_pipelines.policies.agents.ppo import PpoAgent
from nvtrader_pipelines.policies.agents.recurrent_ppo import RecurrentPpoAgent
from nvtrader_pipelines.policies.agents.sac import SacAgent
from nvtrader_pipelines.policies.agents.td3 import DdpgAgent, SarlAgent, Td3Agent
from nvtrader_pipelines.policies.agents.tqc import TqcAgent
from nvtrader_pipelines.policies.agents.trpo import TrpoAgent
from nvtrader_pipelines.policies.fit import DEFAULT_HOOKS, Fit, TrainingHooks
from nvtrader_pipelines.policies.policy import BaseAgent

MemberAgent = Annotated[  # learners from nothing; a shared alias of the union would hide its members from code digests
    PpoAgent
    | A2cAgent
    | SacAgent
    | Td3Agent
    | DdpgAgent
    | SarlAgent
    | RecurrentPpoAgent
    | TqcAgent
    | CrossQAgent
    | GroupedPpoAgent
    | ArsAgent
    | CmaEsAgent
    | TrpoAgent
    | DqnAgent
    | QrDqnAgent
    | MaskablePpoAgent
    | InvestorImitatorAgent
    | PathwiseAgent
    | EiieAgent
    | DeepTraderAgent
    | DifferentiableGrpoAgent,
    Field(discriminator="kind"),
    Family("agents"),
]


class EnsembleAgent(BaseAgent):
    """Several learners on one environment: seed i trains member i mod n, by its place among the seeds.

    The design `best_of_n` then trades, in each fold, the member with the best validation Sharpe ratio (Yang et al.
    2020, FinRL's ensemble); `meta_ensemble` averages the members' weights by these ratios, other designs plainly.
    """

    aliases: ClassVar[tuple[str, ...]] = ("DRLEnsembleAgent", "WalkForwardEnsembler")
    is_classical: ClassVar[bool] = False
    backbones: ClassVar[frozenset[str]] = frozenset()  # those of its members

    kind: Literal["ensemble"] = "ensemble"
    members: Annotated[tuple[MemberAgent, ...], Field(min_length=2, max_length=8)] = (
        A2cAgent(),
        PpoAgent(),
        DdpgAgent(),
    )  # the source's three; equal kinds may differ in settings

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require as many seeds for each member, and all that members require.

        Raises:
            ValueError: if the number of seeds is no multiple of the members, or a member does not suit.
        """
        kind, n_members, n_seeds = kind_of(type(self)), len(self.members), len(spec.seeds)
        if n_seeds % n_members or n_seeds < self.min_seeds:
            raise ValueError(
                f"seeds: {kind} trains its {n_members} members in turn and needs a multiple of {n_members} seeds, "
                f"at least {self.min_seeds}, but they are {list(spec.seeds)}; list more or fewer"
            )
        for position, member in enumerate(self.members):
            member.require_experiment(spec, f"{field}.members.{position}")

    def require_market(self, panel: MarketPanel) -> None:
        """Raise if a member can never act on this market.

        Raises:
            ValueError: with what it lacks.
        """
        for member in self.members:
            member.require_market(panel)

    def shorten(self, max_timesteps: int) -> Self:
        """Return a copy whose members' trainings have at most so many steps."""
        return self.model_copy(update={"members": tuple(member.shorten(max_timesteps) for member in self.members)})

    def member(self, position: int) -> MemberAgent:
        """Member that trains the seed at a position of the experiment's seeds."""
        return self.members[position % len(self.members)]

    def train(
        self,
        panel: MarketPanel,
        env: EnvSpec,
        window: Window | Sequence[Window],
        seed: int,
        hooks: TrainingHooks = DEFAULT_HOOKS,
    ) -> Fit:
        """Train the member whose turn the seed's number is."""
        return self.member(seed).train(panel, env, window, seed, hooks)

    @property
    def min_seeds(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Smallest multiple of the members that shows the spread of seeds."""
        n_members = len(self.members)
        return -(-MIN_SEEDS // n_members) * n_members

    @property
    def total_timesteps(self) -> int:
        """Mean steps of a member's training, rounded up."""
        return -(-sum(member.total_timesteps for member in self.members) // len(self.members))

    @property
    def is_stateful(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether a member's decisions depend on earlier ones."""
        return any(member.is_stateful for member in self.members)

    @property
    def lookback(self) -> int:
        """Longest of the members."""
        return max(member.lookback for member in self.members)

    @property
    def caveat(self) -> str:
        """Caveats of the members for readers of the cards; empty without one."""
        return "; ".join(dict.fromkeys(member.caveat for member in self.members if member.caveat))
