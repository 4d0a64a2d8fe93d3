"""Trained policies at inference: deterministic decisions of one network, or of an average over seeds."""

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.observations import ObservationBuilder, ObservationScaler
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.envs.spec import EnvSpec, StartedAction
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.agents import Learner
from nvtrader_pipelines.policies.archive import PolicyArchiveError, PolicyCard
from nvtrader_pipelines.policies.policy import Decision, Policy

if TYPE_CHECKING:
    import torch


class Interface(NamedTuple):
    """Observations of a panel for a network, and the map from its actions to weights."""

    builder: ObservationBuilder
    weights: StartedAction


Interfaces = dict[tuple[EnvSpec, ObservationScaler], Interface]  # of one panel


def open_policy(
    card: PolicyCard, tensors: "dict[str, torch.Tensor]", panel: MarketPanel, shared: Interfaces | None = None
) -> Policy:
    """Open a stored policy on one panel, for one account.

    Policies of one environment and scaler share an interface of the panel, cached in `shared`.

    Raises:
        PolicyArchiveError: if the panel's symbols or features differ from the card's, or the tensors do not fit the
            card's network.
    """
    agent = card.agent
    require_same_market(card, panel.symbols, panel.feature_names)
    if isinstance(agent, Learner):
        return LearnedPolicy(card, agent, tensors, panel, _interface(card, panel, {} if shared is None else shared))
    policy = agent.rule_policy()
    if tensors or policy is None:
        raise PolicyArchiveError(
            f"a policy of {agent.kind} must have no tensors, but has {len(tensors)}; train the experiment again"
        )
    return policy


def require_same_market(card: PolicyCard, symbols: tuple[str, ...], feature_names: tuple[str, ...]) -> None:
    """Raise if the panel's names or features differ from those the policy was trained on.

    Raises:
        PolicyArchiveError: with both sides.
    """
    _require_same("symbols", card.symbols, symbols)
    _require_same("features", card.feature_names, feature_names)


def _interface(card: PolicyCard, panel: MarketPanel, shared: Interfaces) -> Interface:
    environment = card.environment
    key = (environment, card.scaler)
    if key not in shared:
        builder = environment.observation.start(panel, card.scaler, environment.lookback)
        shared[key] = Interface(builder, environment.start_action(panel))
    return shared[key]


class LearnedPolicy:
    """Trained network on one panel, without exploration; a recurrent network starts with an empty state.

    A copy made before the first decision serves another account: it shares the network and has its own state.

    Raises:
        PolicyArchiveError: if the tensors do not fit the agent's network.
    """

    def __init__(
        self,
        card: PolicyCard,
        agent: Learner,
        tensors: "dict[str, torch.Tensor]",
        panel: MarketPanel,
        interface: Interface,
    ) -> None:
        import torch
        from gymnasium import spaces

        from nvtrader_pipelines.envs.spaces import space_of

        torch.set_num_threads(1)
        self._panel, self._agent = panel, agent
        self._builder, self._map = interface
        action, n_symbols = card.environment.action, len(panel.symbols)
        self._bound = action.size(n_symbols).bound
        self._network = agent.network(
            self._builder.layout,
            spaces.Box(-np.inf, np.inf, (self._builder.length,), np.float32),
            space_of(action, n_symbols),
        )
        try:
            self._network.load_state_dict(tensors)
        except RuntimeError as error:
            raise PolicyArchiveError(
                f"the tensors must fit the network of the policy's card, but do not ({error}); train it again"
            ) from error
        self._network.set_training_mode(False)
        self._state: Any = None
        self._decided_at = -1
        self._with_estimates = True

    @property
    def without_estimates(self) -> Self:
        """Copy for another account; it decides only target weights, in a third of the time."""
        twin = copy(self)
        twin._with_estimates = False  # noqa: SLF001 - its own class
        return twin

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """Return target weights at the close of session `t`."""
        import torch

        from nvtrader_pipelines.envs.observations.builder import observation_hashes

        self._require_next(panel, t)
        index = np.array([t])
        view = AccountView(account.weights[None, :], np.array([account.drawdown]))
        observation = self._builder.observe(index, view)
        with torch.no_grad():
            output = self._agent.act(
                self._network, torch.as_tensor(observation), self._state, with_estimates=self._with_estimates
            )
        self._state, self._decided_at = output.state, t
        raw = np.clip(output.action, -self._bound, self._bound)
        target = self._map(raw[None, :], index, view.weights, np.array([account.equity]))[0]
        observed = int(observation_hashes(observation)[0])
        if not self._with_estimates:
            return Decision(target=target, observation_hash=observed)
        return Decision(
            target=target, action=raw, observation_hash=observed, value=output.value, log_prob=output.log_prob
        )

    def _require_next(self, panel: MarketPanel, t: int) -> None:
        if panel is not self._panel:
            raise ValueError("a learned policy decides only on the panel it was opened on")
        if self._state is not None and t <= self._decided_at:
            raise ValueError(f"a stateful policy decides in order: session {t} is not after {self._decided_at}")


class EnsemblePolicy:
    """Average of several policies' targets, all computed from the ensemble's account.

    `weights` of the members need not sum to 1; without them, all weigh the same. Learned members are copied, since they
    may be stateful.
    """

    def __init__(self, members: Sequence[Policy], weights: Sequence[float] | None = None) -> None:
        self._weights = weights
        self._members = tuple(
            member.without_estimates if isinstance(member, LearnedPolicy) else member for member in members
        )

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """Return the mean of the members' target weights, and the hash of what they all saw, at the close of `t`."""
        decisions = [member.decide(panel, t, account) for member in self._members]
        hashes = {decision.observation_hash for decision in decisions}
        targets = [decision.target for decision in decisions if decision.target is not None]
        mean = np.mean(targets, axis=0) if self._weights is None else np.average(targets, axis=0, weights=self._weights)
        return Decision(
            target=mean,
            observation_hash=hashes.pop() if len(hashes) == 1 else None,
        )


def _require_same(what: str, trained: tuple[str, ...], found: tuple[str, ...]) -> None:
    if trained != found:
        raise PolicyArchiveError(
            f"the policy was trained on {_format_count(what, trained)}, but the panel has {_format_count(what, found)}"
            f"{_format_difference(trained, found)}; use the panel it was trained on or train again"
        )


def _format_difference(trained: tuple[str, ...], found: tuple[str, ...]) -> str:
    """Format the difference of two lists of names; order matters, as weights are positional."""
    missing, new = (
        tuple(name for name in one if name not in other) for one, other in ((trained, found), (found, trained))
    )
    without, more = (
        f", without {_format_names(missing)}" if missing else "",
        f", with {_format_names(new)}" if new else "",
    )
    return without + more or ", in another order"


def _format_count(what: str, names: tuple[str, ...]) -> str:
    return f"{len(names)} {what} ({_format_names(names)})"


def _format_names(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
