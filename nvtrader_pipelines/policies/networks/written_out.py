"""Forward and backward passes of small actor-critics, written out on arrays that are used again."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import Tensor, nn

from nvtrader_pipelines.envs.observations.per_asset_builder import ASSET_COLUMNS, CONTEXT_COLUMNS
from nvtrader_pipelines.policies.networks.gaussian_policy import GaussianPolicy
from nvtrader_pipelines.policies.networks.loops import adam_step, relu, relu_gradient, tanh, tanh_gradient
from nvtrader_pipelines.policies.networks.shared_asset_network import SharedAssetPolicy

ACTIVATIONS = {nn.Tanh: (tanh, tanh_gradient), nn.ReLU: (relu, relu_gradient)}


class FlatParameters:
    """Parameters of a policy in one array, with their gradient and Adam's moments; torch's tensors become its views."""

    def __init__(self, policy: GaussianPolicy, first: Sequence[str] = ()) -> None:
        """Move the parameters, those named `first` ahead of the others."""
        parameters = dict(policy.named_parameters())
        self._parameters = {name: parameters[name] for name in dict.fromkeys([*first, *parameters])}
        self._optimizer, self._n_steps = policy.optimizer, 0
        size = sum(parameter.numel() for parameter in parameters.values())
        self._values, self._gradient, self._mean, self._square = (torch.zeros(size) for _ in range(4))
        self._arrays = self._values.numpy(), self._gradient.numpy(), self._mean.numpy(), self._square.numpy()
        self.views, self.gradients = self._split(self._values), self._split(self._gradient)
        for name, view in self.views.items():
            view.copy_(parameters[name].detach())
            parameters[name].data = view

    def _split(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of a flat array with the names and shapes of the parameters."""
        parts = flat.split([parameter.numel() for parameter in self._parameters.values()])
        return {
            name: part.view(parameter.shape)
            for part, (name, parameter) in zip(parts, self._parameters.items(), strict=True)
        }

    def first(self, shape: tuple[int, int]) -> "Linear":
        """Layer of the first weights (outputs, inputs) and biases, which may be several parameters each."""
        n_weights, n_outputs = shape[0] * shape[1], shape[0]
        parts = [
            (flat[:n_weights].view(shape), flat[n_weights : n_weights + n_outputs])
            for flat in (self._values, self._gradient)
        ]
        return Linear(*parts[0], *parts[1])

    def linear(self, name: str) -> "Linear":
        """Layer by its name."""
        weight, bias = f"{name}.weight", f"{name}.bias"
        return Linear(self.views[weight], self.views[bias], self.gradients[weight], self.gradients[bias])

    def read_moments(self) -> None:
        """Take over the optimizer's moments where they are not these, as after a restored checkpoint."""
        means, squares = self._split(self._mean), self._split(self._square)
        for name, parameter in self._parameters.items():
            state: dict[str, Any] = self._optimizer.state[parameter]
            if state and state["exp_avg"].data_ptr() != means[name].data_ptr():
                means[name].copy_(state["exp_avg"])
                squares[name].copy_(state["exp_avg_sq"])
                self._n_steps = int(state["step"])
            state.update(exp_avg=means[name], exp_avg_sq=squares[name])

    def write_steps(self) -> None:
        """Tell the optimizer the number of steps."""
        for parameter in self._parameters.values():
            self._optimizer.state[parameter]["step"] = torch.tensor(float(self._n_steps))

    def step(self, max_norm: float) -> None:
        """Take a step of the optimizer's Adam by the gradient, clipped as torch clips it."""
        group, norm = self._optimizer.param_groups[0], float(torch.linalg.vector_norm(self._gradient))
        self._n_steps += 1
        scale = min(1.0, max_norm / (norm + 1e-6))
        beta_1, beta_2 = group["betas"]
        adam_step(*self._arrays, scale, float(group["lr"]), beta_1, beta_2, group["eps"], self._n_steps)


class Linear:
    """Linear layer with its gradient."""

    def __init__(self, weight: Tensor, bias: Tensor, d_weight: Tensor, d_bias: Tensor) -> None:
        self.weight, self.bias, self.d_weight, self.d_bias = weight, bias, d_weight, d_bias

    def forward(self, inputs: Tensor, outputs: Tensor) -> None:
        """Write outputs (n, b) of inputs (n, a)."""
        torch.addmm(self.bias, inputs, self.weight.t(), out=outputs)

    def backward(self, d_outputs: Tensor, inputs: Tensor, d_inputs: Tensor | None = None) -> None:
        """Write the gradients of weight and bias, and those of the inputs."""
        torch.mm(d_outputs.t(), inputs, out=self.d_weight)
        torch.sum(d_outputs, 0, out=self.d_bias)
        if d_inputs is not None:
            torch.mm(d_outputs, self.weight, out=d_inputs)


class Batch:
    """Arrays of n observations: inputs and outputs of a network, and the gradients of the outputs."""

    def __init__(self, n: int, n_inputs: int, n_actions: int) -> None:
        self.observations, self.noise = torch.empty(n, n_inputs), torch.empty(n, n_actions)
        self.means, self.d_means = torch.empty(2, n, n_actions).unbind()
        self.values, self.d_values = torch.empty(2, n, 1).unbind()
        self.log_probs = torch.empty(n)


B = TypeVar("B", bound=Batch)


class WrittenOutNetwork(ABC, Generic[B]):
    """Actor-critic whose gradient is written out; one thread, and no array is allocated twice."""

    def __init__(self, policy: GaussianPolicy, first: Sequence[str] = ()) -> None:
        self.flat = FlatParameters(policy, first)
        self.log_std, self.d_log_std = self.flat.views["log_std"].numpy(), self.flat.gradients["log_std"].numpy()
        self._n_inputs, self._n_actions = policy.features_dim, len(self.log_std)
        self._batches: dict[int, B] = {}

    def batch(self, n: int) -> B:
        """Arrays of n observations, which the next pass of n overwrites."""
        if n not in self._batches:
            self._batches[n] = self.new_batch(n)
        return self._batches[n]

    @abstractmethod
    def new_batch(self, n: int) -> B:
        """Allocate the arrays of n observations."""

    @abstractmethod
    def forward(self, observations: Tensor) -> B:
        """Pass observations (n, length) to means (n, A) and values (n, 1)."""

    @abstractmethod
    def backward(self, observations: Tensor, batch: B) -> None:
        """Write the gradient of all weights but `log_std` from those of means and values."""


class MlpBatch(Batch):
    """Arrays of an MLP's pass: each hidden layer's results, and their gradients, by head."""

    def __init__(self, n: int, n_inputs: int, n_actions: int, hidden: Sequence[Sequence[int]]) -> None:
        super().__init__(n, n_inputs, n_actions)
        firsts = [sizes[0] for sizes in hidden]
        self.first, self.d_first = torch.empty(2, n, sum(firsts)).unbind()
        self.results, self.d_results = (
            [
                [part, *(torch.empty(n, size) for size in sizes[1:]), output]
                for part, sizes, output in zip(joint.split(firsts, 1), hidden, outputs, strict=True)
            ]
            for joint, outputs in (
                (self.first, (self.means, self.values)),
                (self.d_first, (self.d_means, self.d_values)),
            )
        )


class WrittenOutMlp(WrittenOutNetwork[MlpBatch]):
    """`GaussianPolicy` whose actor and critic are MLPs on the observation; their first layers are one, as there."""

    def __init__(self, policy: GaussianPolicy) -> None:
        nets = "mlp_extractor.policy_net", "mlp_extractor.value_net"
        super().__init__(policy, [f"{net}.0.{part}" for part in ("weight", "bias") for net in nets])
        heads = [
            [
                (f"{net}.{i}", layer)
                for i, layer in policy.get_submodule(net).named_children()
                if isinstance(layer, nn.Linear)
            ]
            for net in nets
        ]
        self._hidden = [[layer.out_features for _, layer in head] for head in heads]
        self._first = self.flat.first((sum(sizes[0] for sizes in self._hidden), self._n_inputs))
        self._heads = [
            [self.flat.linear(name) for name in (*(name for name, _ in head[1:]), output)]
            for head, output in zip(heads, ("action_net", "value_net"), strict=True)
        ]
        self._activation, self._gradient = ACTIVATIONS[policy.activation_fn]

    def new_batch(self, n: int) -> MlpBatch:
        """Allocate the arrays of n observations."""
        return MlpBatch(n, self._n_inputs, self._n_actions, self._hidden)

    def forward(self, observations: Tensor) -> MlpBatch:
        """Pass observations (n, length) to means (n, A) and values (n, 1)."""
        batch = self.batch(len(observations))
        self._first.forward(observations, batch.first)
        self._activation(batch.first.numpy())
        for layers, results in zip(self._heads, batch.results, strict=True):
            for i, layer in enumerate(layers):
                layer.forward(results[i], results[i + 1])
                if i + 1 < len(layers):
                    self._activation(results[i + 1].numpy())
        return batch

    def backward(self, observations: Tensor, batch: MlpBatch) -> None:
        """Write the gradient of all weights but `log_std` from those of means and values."""
        for layers, results, d_results in zip(self._heads, batch.results, batch.d_results, strict=True):
            for i in reversed(range(len(layers))):
                layers[i].backward(d_results[i + 1], results[i], d_results[i])
                if i:
                    self._gradient(d_results[i].numpy(), results[i].numpy())
        self._gradient(batch.d_first.numpy(), batch.first.numpy())
        self._first.backward(batch.d_first, observations)


class SharedAssetBatch(Batch):
    """Arrays of the shared network's pass: rows of names and of observations."""

    def __init__(self, n: int, n_symbols: int, n_inputs: int, sizes: Mapping[str, int]) -> None:
        super().__init__(n, n_inputs, n_symbols + 1)
        rows = n * n_symbols
        self.assets, self.context = torch.empty(rows, ASSET_COLUMNS), torch.empty(n, CONTEXT_COLUMNS)
        self.first, self.d_first = torch.empty(2, rows, sizes["asset_in"]).unbind()
        self.second, self.d_second = torch.empty(2, rows, sizes["asset_hidden"]).unbind()
        self.scores, self.d_scores = torch.empty(2, rows, 1).unbind()
        self.shift, self.d_shift = torch.empty(2, n, sizes["asset_in"]).unbind()
        self.exposure, self.d_exposure = torch.empty(2, n, sizes["exposure.0"]).unbind()
        self.tilt, self.d_tilt = torch.empty(2, n, 1).unbind()
        self.summary = torch.empty(n, ASSET_COLUMNS + CONTEXT_COLUMNS)
        self.critic, self.d_critic = torch.empty(2, n, sizes["critic.0"]).unbind()


class WrittenOutSharedAsset(WrittenOutNetwork[SharedAssetBatch]):
    """`SharedAssetPolicy`; the context enters the first layer of every name as a shift that they share."""

    def __init__(self, policy: SharedAssetPolicy) -> None:
        super().__init__(policy)
        names = ("asset_in", "asset_hidden", "asset_out", "exposure.0", "exposure.2", "critic.0")
        self._layers = {name: self.flat.linear(f"mlp_extractor.{name}") for name in names}
        self._value = self.flat.linear("value_net")
        context = "mlp_extractor.context_in.weight"
        self._context, self._d_context = self.flat.views[context], self.flat.gradients[context]
        self._n_symbols = self._n_actions - 1

    def new_batch(self, n: int) -> SharedAssetBatch:
        """Allocate the arrays of n observations."""
        sizes = {name: len(layer.bias) for name, layer in self._layers.items()}
        return SharedAssetBatch(n, self._n_symbols, self._n_inputs, sizes)

    def forward(self, observations: Tensor) -> SharedAssetBatch:
        """Pass observations (n, length) to means (n, A) and values (n, 1)."""
        n, layers = len(observations), self._layers
        batch = self.batch(n)
        batch.assets.view(n, -1).copy_(observations[:, :-CONTEXT_COLUMNS])
        batch.context.copy_(observations[:, -CONTEXT_COLUMNS:])
        torch.addmm(layers["asset_in"].bias, batch.context, self._context.t(), out=batch.shift)
        torch.mm(batch.assets, layers["asset_in"].weight.t(), out=batch.first)
        batch.first.view(n, self._n_symbols, -1).add_(batch.shift[:, None])
        tanh(batch.first.numpy())
        layers["asset_hidden"].forward(batch.first, batch.second)
        tanh(batch.second.numpy())
        layers["asset_out"].forward(batch.second, batch.scores)
        _center(batch.scores.view(n, -1), batch.means[:, :-1])
        layers["exposure.0"].forward(batch.context, batch.exposure)
        tanh(batch.exposure.numpy())
        layers["exposure.2"].forward(batch.exposure, batch.tilt)
        batch.means[:, -1:] = batch.tilt
        torch.mean(batch.assets.view(n, self._n_symbols, -1), 1, out=batch.summary[:, :ASSET_COLUMNS])
        batch.summary[:, ASSET_COLUMNS:] = batch.context
        layers["critic.0"].forward(batch.summary, batch.critic)
        tanh(batch.critic.numpy())
        self._value.forward(batch.critic, batch.values)
        return batch

    def backward(self, observations: Tensor, batch: SharedAssetBatch) -> None:
        """Write the gradient of all weights but `log_std` from those of means and values."""
        n, layers = len(observations), self._layers
        _center(batch.d_means[:, :-1], batch.d_scores.view(n, -1))
        layers["asset_out"].backward(batch.d_scores, batch.second, batch.d_second)
        tanh_gradient(batch.d_second.numpy(), batch.second.numpy())
        layers["asset_hidden"].backward(batch.d_second, batch.first, batch.d_first)
        tanh_gradient(batch.d_first.numpy(), batch.first.numpy())
        layers["asset_in"].backward(batch.d_first, batch.assets)
        torch.sum(batch.d_first.view(n, self._n_symbols, -1), 1, out=batch.d_shift)
        torch.mm(batch.d_shift.t(), batch.context, out=self._d_context)
        batch.d_tilt.copy_(batch.d_means[:, -1:])
        layers["exposure.2"].backward(batch.d_tilt, batch.exposure, batch.d_exposure)
        tanh_gradient(batch.d_exposure.numpy(), batch.exposure.numpy())
        layers["exposure.0"].backward(batch.d_exposure, batch.context)
        self._value.backward(batch.d_values, batch.critic, batch.d_critic)
        tanh_gradient(batch.d_critic.numpy(), batch.critic.numpy())
        layers["critic.0"].backward(batch.d_critic, batch.summary)


def _center(rows: Tensor, out: Tensor) -> None:
    """Write rows (n, m) less their means."""
    torch.sub(rows, rows.mean(1, keepdim=True), out=out)


def written_out(policy: ActorCriticPolicy) -> WrittenOutNetwork[Any] | None:
    """Written-out network of a policy; None if there is none for its kind, or it is not trained by plain Adam."""
    settings = policy.optimizer.defaults
    is_plain = not (settings.get("weight_decay") or settings.get("amsgrad") or settings.get("maximize"))
    if type(policy.optimizer) is not torch.optim.Adam or not is_plain:
        return None
    if type(policy) is SharedAssetPolicy:
        return WrittenOutSharedAsset(policy)
    if type(policy) is not GaussianPolicy or type(policy.features_extractor) is not FlattenExtractor:
        return None
    has_hidden = len(policy.mlp_extractor.policy_net) and len(policy.mlp_extractor.value_net)
    return WrittenOutMlp(policy) if has_hidden and policy.activation_fn in ACTIVATIONS else None
