"""Stable-Baselines3's actor-critic with a Dirichlet distribution over the weights of names and cash."""

from stable_baselines3.common.type_aliases import PyTorchObs
from torch import Tensor
from torch.distributions import Dirichlet
from torch.nn.functional import softplus
from typing_extensions import override

from nvtrader_pipelines.policies.networks.gaussian_policy import GaussianPolicy

MIN_CONCENTRATION = 1.1  # above 1, so that the density has one mode, inside the simplex


class DirichletPolicy(GaussianPolicy):
    """Actor whose raw outputs are concentrations; critic and deviation are built and not used.

    Source: lee101/stock-prediction (differentiable_market), softplus + 1.1.
    """

    def distribution(self, observation: Tensor) -> Dirichlet:
        """Distributions of weights (n, N+1), cash last, in double precision."""
        raw = super()._predict(observation, deterministic=True)
        return Dirichlet(softplus(raw.double()) + MIN_CONCENTRATION)

    @override
    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> Tensor:
        """Return logits (n, N+1) of the mean weights, or of drawn ones, for the action `simplex`.

        Their middle is 0, so that a bound b reaches every ratio of weights up to exp(2b).
        """
        assert isinstance(observation, Tensor)
        distribution = self.distribution(observation)
        logits = (distribution.mean if deterministic else distribution.sample()).log()
        return (logits - 0.5 * (logits.amax(dim=1, keepdim=True) + logits.amin(dim=1, keepdim=True))).float()
