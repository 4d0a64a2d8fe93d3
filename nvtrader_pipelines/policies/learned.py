"""Trained policies in use: deterministic decisions of one network, or of the average over seeds."""

from collections.abc import Sequence

import numpy as np
import torch
from gymnasium import spaces

from nvtrader_pipelines.envs.dynamics import Account
from nvtrader_pipelines.envs.observations.builder import AccountView, observation_hash
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.archive import PolicyArchiveError, PolicyCard
from nvtrader_pipelines.policies.policy import Decision


class LearnedPolicy:
    """One trained network on one panel; decides by the mean of its distribution.

    Raises:
        PolicyArchiveError: if the panel's symbols or features are not those it was trained on, or the tensors are not
            those of the card's network.
    """

    def __init__(self, card: PolicyCard, tensors: dict[str, torch.Tensor], panel: MarketPanel) -> None:
        _require_same("symbols", card.symbols, panel.symbols)
        _require_same("features", card.feature_names, panel.feature_names)
        torch.set_num_threads(1)
        environment = card.environment
        self._panel = panel
        self._builder = environment.observation.start(panel, card.scaler, environment.lookback)
        self._map = environment.action.start(panel)
        size = environment.action.size(len(panel.symbols))
        policy_class, policy_kwargs = card.agent.backbone.actor_critic(self._builder.layout, card.agent.log_std_init)
        self._network = policy_class(
            spaces.Box(-np.inf, np.inf, (self._builder.length,), np.float32),
            spaces.Box(-size.bound, size.bound, (size.length,), np.float32),
            lambda _: 0.0,
            **policy_kwargs,
        )
        self._bound = size.bound
        try:
            self._network.load_state_dict(tensors)
        except RuntimeError as error:
            raise PolicyArchiveError(
                f"the policy's tensors do not fit the network its card names ({error}); train the experiment again"
            ) from error
        self._network.set_training_mode(False)

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """The weights wanted at the close of session `t`."""
        if panel is not self._panel:
            raise ValueError("a learned policy decides on the panel it was opened with; open it again on this one")
        index = np.array([t])
        view = AccountView(account.weights[None, :], np.array([account.drawdown]))
        observation = self._builder.observe(index, view)
        with torch.no_grad():
            action, value, log_prob = self._network(torch.as_tensor(observation), deterministic=True)
        raw = np.clip(action.numpy(), -self._bound, self._bound)
        return Decision(
            target=self._map(raw, index)[0],
            action=raw[0],
            observation_hash=observation_hash(observation[0]),
            value=float(value),
            log_prob=float(log_prob),
        )


class EnsemblePolicy:
    """The average of several policies' targets, each asked with the ensemble's own account."""

    def __init__(self, members: Sequence[LearnedPolicy]) -> None:
        self._members = tuple(members)

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """The mean of the members' weights at the close of session `t`."""
        targets = [member.decide(panel, t, account).target for member in self._members]
        return Decision(target=np.mean([target for target in targets if target is not None], axis=0))


def _require_same(what: str, trained: tuple[str, ...], found: tuple[str, ...]) -> None:
    if trained != found:
        raise PolicyArchiveError(
            f"the policy was trained on {_listed(what, trained)}, but the panel has {_listed(what, found)}; "
            "use the panel it was trained on or train again"
        )


def _listed(what: str, names: tuple[str, ...]) -> str:
    more = ", ..." if len(names) > 5 else ""
    return f"{len(names)} {what} ({', '.join(names[:5])}{more})"
