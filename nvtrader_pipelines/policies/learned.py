"""Trained policies in use: deterministic decisions of one network, or of the average over seeds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.actions import ActionMap
from nvtrader_pipelines.envs.observations import ObservationBuilder, ObservationScaler
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.agents import Learner
from nvtrader_pipelines.policies.archive import PolicyArchiveError, PolicyCard
from nvtrader_pipelines.policies.policy import Decision, Policy

if TYPE_CHECKING:
    import torch


class Interface(NamedTuple):
    """What stands between one panel and a network: what the network sees, and the weights its answer stands for."""

    builder: ObservationBuilder
    weights: ActionMap


Interfaces = dict[tuple[EnvSpec, ObservationScaler], Interface]  # of one panel


def open_policy(
    card: PolicyCard, tensors: "dict[str, torch.Tensor]", panel: MarketPanel, shared: Interfaces | None = None
) -> Policy:
    """The policy of a card on one panel, for one account: what it remembers is that account's.

    Args:
        card: of the policy.
        tensors: of its network.
        panel: the market.
        shared: what the policies opened on this panel so far stand on; policies of one environment and scaler share it.

    Raises:
        PolicyArchiveError: if the panel's symbols or features are not those of the card, or the tensors are not those
            of the card's network.
    """
    agent = card.agent
    require_same_market(card, panel)
    if isinstance(agent, Learner):
        return LearnedPolicy(card, agent, tensors, panel, _interface(card, panel, {} if shared is None else shared))
    if tensors:
        raise PolicyArchiveError(
            f"a classical agent has no tensors, but the policy of {agent.kind} has {len(tensors)}; "
            "train the experiment again"
        )
    return agent.start()


def require_same_market(card: PolicyCard, panel: MarketPanel) -> None:
    """Refuse a panel of other names or features than the policy was trained on.

    Raises:
        PolicyArchiveError: if it is one, naming both sides.
    """
    _require_same("symbols", card.symbols, panel.symbols)
    _require_same("features", card.feature_names, panel.feature_names)


def _interface(card: PolicyCard, panel: MarketPanel, shared: Interfaces) -> Interface:
    environment = card.environment
    key = (environment, card.scaler)
    if key not in shared:
        builder = environment.observation.start(panel, card.scaler, environment.lookback)
        shared[key] = Interface(builder, environment.action.start(panel))
    return shared[key]


class LearnedPolicy:
    """One trained network on one panel; decides without exploring. A network with memory begins with none.

    A copy made before the first decision is for another account; it shares the network and remembers for itself.

    Raises:
        PolicyArchiveError: if the tensors are not those of the agent's network.
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

        torch.set_num_threads(1)
        self._panel, self._agent = panel, agent
        self._builder, self._map = interface
        size = card.environment.action.size(len(panel.symbols))
        self._bound = size.bound
        self._network = agent.network(
            self._builder.layout,
            spaces.Box(-np.inf, np.inf, (self._builder.length,), np.float32),
            spaces.Box(-size.bound, size.bound, (size.length,), np.float32),
        )
        try:
            self._network.load_state_dict(tensors)
        except RuntimeError as error:
            raise PolicyArchiveError(
                f"the policy's tensors do not fit the network its card names ({error}); train the experiment again"
            ) from error
        self._network.set_training_mode(False)
        self._state: Any = None
        self._decided_at = -1

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """The weights wanted at the close of session `t`."""
        import torch

        from nvtrader_pipelines.envs.observations.hashing import observation_hashes

        self._require_next(panel, t)
        index = np.array([t])
        view = AccountView(account.weights[None, :], np.array([account.drawdown]))
        observation = self._builder.observe(index, view)
        with torch.no_grad():
            output = self._agent.act(self._network, torch.as_tensor(observation), self._state)
        self._state, self._decided_at = output.state, t
        raw = np.clip(output.action, -self._bound, self._bound)
        return Decision(
            target=self._map(raw[None, :], index)[0],
            action=raw,
            observation_hash=int(observation_hashes(observation)[0]),
            value=output.value,
            log_prob=output.log_prob,
        )

    def _require_next(self, panel: MarketPanel, t: int) -> None:
        if panel is not self._panel:
            raise ValueError("a learned policy decides on the panel it was opened with; open it again on this one")
        if self._state is not None and t <= self._decided_at:
            raise ValueError(
                f"a policy with memory decides session after session, but it has decided at {self._decided_at} and is "
                f"asked for {t}; open it again for each account"
            )


class EnsemblePolicy:
    """The average of several policies' targets, each asked with the ensemble's own account."""

    def __init__(self, members: Sequence[Policy]) -> None:
        self._members = tuple(members)

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """The mean of the members' weights at the close of session `t`."""
        targets = [member.decide(panel, t, account).target for member in self._members]
        return Decision(target=np.mean([target for target in targets if target is not None], axis=0))


def _require_same(what: str, trained: tuple[str, ...], found: tuple[str, ...]) -> None:
    if trained != found:
        raise PolicyArchiveError(
            f"the policy was trained on {_listed(what, trained)}, but the panel has {_listed(what, found)}"
            f"{_apart(trained, found)}; use the panel it was trained on or train again"
        )


def _apart(trained: tuple[str, ...], found: tuple[str, ...]) -> str:
    """In what two lists of names differ; positions in weights and observations go by their order."""
    gone, new = (
        tuple(name for name in one if name not in other) for one, other in ((trained, found), (found, trained))
    )
    without, more = f", without {_first(gone)}" if gone else "", f", with {_first(new)}" if new else ""
    return without + more or ", in another order"


def _listed(what: str, names: tuple[str, ...]) -> str:
    return f"{len(names)} {what} ({_first(names)})"


def _first(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
