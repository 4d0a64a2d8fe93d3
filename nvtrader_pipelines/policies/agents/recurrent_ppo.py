"""sb3-contrib's recurrent PPO on the native vector environment."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import PositiveInt

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.learner import EXTRACTORS, NetworkOutput
from nvtrader_pipelines.policies.agents.ppo import ClippedLearner
from nvtrader_pipelines.policies.backbones.backbone import OPTIMIZER

if TYPE_CHECKING:
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
    from sb3_contrib.common.recurrent.type_aliases import RNNStates
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.policies import ActorCriticPolicy
    from torch import Tensor


class RecurrentPpoAgent(ClippedLearner):
    """PPO with an LSTM each for actor and critic, from sb3-contrib: slow to train; defaults untuned.

    The recurrent state is updated at decisions; it is reset at every episode in training and every test window.
    """

    backbones: ClassVar[frozenset[str]] = EXTRACTORS
    is_stateful: ClassVar[bool] = True
    is_tunable: ClassVar[bool] = False  # its actor has a state

    kind: Literal["recurrent_ppo"] = "recurrent_ppo"
    lstm_hidden_size: PositiveInt = 32
    n_lstm_layers: PositiveInt = 1

    @property
    def algorithm(self) -> "type[OnPolicyAlgorithm]":
        """SB3 class of the algorithm."""
        from sb3_contrib import RecurrentPPO

        return RecurrentPPO

    def policy(self, layout: ObservationLayout) -> "tuple[type[ActorCriticPolicy], dict[str, Any]]":
        """SB3 class of the policy, and its keyword arguments."""
        import torch
        from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
        from torch import nn

        layers, extractor = self.extractor(layout)
        return RecurrentActorCriticPolicy, {
            "net_arch": {"pi": layers, "vf": layers},
            "activation_fn": nn.Tanh,
            "ortho_init": True,
            "share_features_extractor": True,
            "log_std_init": self.log_std_init,
            "lstm_hidden_size": self.lstm_hidden_size,
            "n_lstm_layers": self.n_lstm_layers,
            "shared_lstm": False,
            "enable_critic_lstm": True,
            "optimizer_class": torch.optim.Adam,
            "optimizer_kwargs": OPTIMIZER,
            **extractor,
        }

    def act(
        self,
        network: "RecurrentActorCriticPolicy",
        observation: "Tensor",
        state: "RNNStates | None",
        *,
        with_estimates: bool = True,  # noqa: ARG002 - one pass computes state, action and estimates
    ) -> NetworkOutput:
        """Return the mean action, given the recurrent state."""
        import torch
        from sb3_contrib.common.recurrent.type_aliases import RNNStates

        if state is None:
            blank = torch.zeros(network.lstm_hidden_state_shape)
            state = RNNStates((blank, blank), (blank, blank))
        episode_starts = torch.zeros(1)
        action, value, log_prob, next_state = network(observation, state, episode_starts, deterministic=True)
        return NetworkOutput(action.numpy()[0], float(value), float(log_prob), next_state)
