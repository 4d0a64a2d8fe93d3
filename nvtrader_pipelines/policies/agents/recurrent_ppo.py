"""sb3-contrib's PPO with memory on the native vector environment."""

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
    """PPO with an LSTM each under actor and critic, from sb3-contrib: slow to train; defaults untuned.

    The memory is updated at decisions. In training it begins anew with every episode, in use with every test window.
    """

    backbones: ClassVar[frozenset[str]] = EXTRACTORS

    kind: Literal["recurrent_ppo"] = "recurrent_ppo"
    lstm_hidden_size: PositiveInt = 32
    n_lstm_layers: PositiveInt = 1

    @property
    def algorithm(self) -> "type[OnPolicyAlgorithm]":
        """The library's class."""
        from sb3_contrib import RecurrentPPO

        return RecurrentPPO

    def policy(self, layout: ObservationLayout) -> "tuple[type[ActorCriticPolicy], dict[str, Any]]":
        """The policy's class, and its keyword arguments."""
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
        self, network: "RecurrentActorCriticPolicy", observation: "Tensor", state: "RNNStates | None"
    ) -> NetworkOutput:
        """The distribution's mean, by what was seen before."""
        import torch
        from sb3_contrib.common.recurrent.type_aliases import RNNStates

        if state is None:
            blank = torch.zeros(network.lstm_hidden_state_shape)
            state = RNNStates((blank, blank), (blank, blank))
        going_on = torch.zeros(1)
        action, value, log_prob, after = network(observation, state, going_on, deterministic=True)
        return NetworkOutput(action.numpy()[0], float(value), float(log_prob), after)
