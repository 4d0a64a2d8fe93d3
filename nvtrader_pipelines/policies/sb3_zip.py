"""Policies that Stable-Baselines3 trained elsewhere, read from their zip without unpickling."""

import hashlib
import io
import json
import re
import zipfile
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy
from torch import Tensor, nn

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.observations import ObservationBuilder, ObservationScaler
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.envs.spec import EnvSpec, StartedAction
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.archive import PolicyArchiveError
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.policies.sb3_limits import MAX_BYTES, Activation, Algorithm

Tensors = dict[str, Tensor]

TENSORS, DATA, VERSION = "policy.pth", "data", "_stable_baselines3_version"
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "leaky_relu": nn.LeakyReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}


@dataclass(frozen=True, eq=False)
class Sb3Zip:
    """Content of a zip that `model.save()` wrote."""

    tensors: Tensors
    version: str  # of Stable-Baselines3; empty if the zip does not name it
    num_timesteps: int | None
    sha256: str  # of the file
    activation: str | None = None  # torch class of the hidden layers, such as ReLU; None if the zip does not name it
    use_sde: bool = False  # explored with state-dependent noise
    is_normalized: bool = False  # trained behind VecNormalize, whose statistics are not in the zip


class _Algorithm(NamedTuple):
    """Policy class of an algorithm, and the names of its layers."""

    policy: type[BasePolicy]
    default: Activation
    actor: str  # prefix of a layer's number
    critic: str
    n_outputs: tuple[int, int]  # output layers at the end of the actor's and the critic's sequence


_ACTOR_CRITIC = _Algorithm(ActorCriticPolicy, "tanh", "mlp_extractor.policy_net", "mlp_extractor.value_net", (0, 0))
_FAMILIES: dict[str, _Algorithm] = {
    "ppo": _ACTOR_CRITIC,
    "a2c": _ACTOR_CRITIC,
    "sac": _Algorithm(SACPolicy, "relu", "actor.latent_pi", "critic.qf0", (0, 1)),
    "td3": _Algorithm(TD3Policy, "relu", "actor.mu", "critic.qf0", (1, 1)),
}


def read_sb3_zip(content: bytes) -> Sb3Zip:
    """Read the policy's tensors and settings; nothing in the zip is executed.

    Raises:
        PolicyArchiveError: if the bytes are not a zip of `model.save()`, or its tensors are not plain tensors.
    """
    try:
        _require_small("the file", len(content))
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            data = json.loads(_read_member(archive, DATA))
            tensors = _require_plain(_load_tensors(_read_member(archive, TENSORS)))
            version = _read_member(archive, VERSION).decode() if VERSION in archive.namelist() else ""
        return _make_zip(tensors, version.strip(), data, hashlib.sha256(content).hexdigest())
    except PolicyArchiveError:
        raise
    except Exception as error:  # hostile bytes make zip, JSON and torch raise any class
        raise PolicyArchiveError(
            f"a policy of Stable-Baselines3 must be the zip of model.save() with {DATA} and {TENSORS} of plain "
            f"tensors, but this one cannot be read ({_format_error(error)}); save the model again"
        ) from error


def _format_error(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _require_small(what: str, n_bytes: int) -> None:
    if n_bytes > MAX_BYTES:
        raise ValueError(f"{what} has {n_bytes >> 20} MiB, more than {MAX_BYTES >> 20}")


def _read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    _require_small(name, archive.getinfo(name).file_size)
    return archive.read(name)


def _load_tensors(content: bytes) -> Any:
    if not zipfile.is_zipfile(io.BytesIO(content)):  # torch's format before 2020 is a bare pickle
        raise ValueError(f"{TENSORS} is not in torch's zip format")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        records = archive.infolist()
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):  # torch.save never compresses
        raise ValueError(f"{TENSORS} holds compressed records, whose true size is unknown before unpacking")
    _require_small(f"unpacked {TENSORS}", sum(record.file_size for record in records))
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _require_plain(saved: Any) -> Tensors:
    found = saved if isinstance(saved, dict) else {}
    invalid = [str(name) for name, value in found.items() if not (isinstance(name, str) and _is_plain(value))]
    if invalid or not found:
        raise PolicyArchiveError(
            f"{TENSORS} must map names to plain tensors, dense and of floating-point numbers, but holds "
            f"{', '.join(invalid[:3])[:200] or type(saved).__name__}; save the model again"
        )
    _require_small(
        f"all tensors of {TENSORS}", sum(tensor.numel() * tensor.element_size() for tensor in found.values())
    )
    broken = next((name for name, tensor in found.items() if not torch.isfinite(tensor).all()), None)
    if broken is not None:
        raise PolicyArchiveError(f"a policy must hold finite numbers, but {broken} does not; train it again")
    return found


def _is_plain(value: Any) -> bool:
    """Whether a value is a dense, contiguous tensor of floats on the CPU."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        return False
    return value.is_floating_point() and not value.is_quantized and value.is_contiguous()


def _make_zip(tensors: Tensors, version: str, data: Any, sha256: str) -> Sb3Zip:
    """Add the plain-text settings of the zip's JSON document to its tensors."""
    settings = data if isinstance(data, dict) else {}
    count, kwargs = settings.get("num_timesteps"), settings.get("policy_kwargs")
    activation = kwargs.get("activation_fn") if isinstance(kwargs, dict) else None
    match = re.fullmatch(r"<class '(?:\w+\.)*(\w+)'>", activation) if isinstance(activation, str) else None
    return Sb3Zip(
        tensors=tensors,
        version=version,
        num_timesteps=count if isinstance(count, int) else None,
        sha256=sha256,
        activation=match[1] if match else None,
        use_sde=settings.get("use_sde") is True,
        is_normalized=settings.get("_last_original_obs") is not None,  # the library fills it behind VecNormalize only
    )


class Sb3Policy:
    """Policy of a Stable-Baselines3 network: the deterministic action of `model.predict`, as weights."""

    def __init__(self, network: BasePolicy, builder: ObservationBuilder, weights: StartedAction) -> None:
        self._network, self._builder, self._map = network, builder, weights

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """Return target weights at the close of session `t`."""
        at = np.array([t])
        view = AccountView(account.weights[None, :], np.array([account.drawdown]))
        action, _ = self._network.predict(self._builder.observe(at, view), deterministic=True)
        target = self._map(action, at, view.weights, np.array([account.equity]))[0]
        return Decision(target=target, action=action[0])


def open_sb3(
    saved: Sb3Zip,
    algorithm: Algorithm,
    activation: Activation | None,
    environment: EnvSpec,
    scaler: ObservationScaler,
    panel: MarketPanel,
) -> Sb3Policy:
    """Open the policy on one panel, with layers sized as the tensors are.

    Algorithm, environment and scaler are those of its training. Without an activation, the hidden layers have that of
    the zip, or the algorithm's default.

    Raises:
        PolicyArchiveError: if the tensors do not fit the algorithm's MLP policy on this environment and panel.
    """
    torch.set_num_threads(1)
    builder = environment.observation.start(panel, scaler, environment.lookback)
    size = environment.action.size(len(panel.symbols))
    family, tensors = _FAMILIES[algorithm], saved.tensors
    if saved.use_sde:
        raise PolicyArchiveError(
            "a policy must be trained without use_sde, but this one was trained with it; train it again"
        )
    _require_fit(tensors, algorithm, (builder.length, size.length))
    hidden = ACTIVATIONS[_activation(saved, activation, family)]
    observations = spaces.Box(-np.inf, np.inf, (builder.length,), np.float32)
    actions = spaces.Box(-size.bound, size.bound, (size.length,), np.float32)
    try:
        network = _make_network(family, tensors, hidden, observations, actions)
        network.load_state_dict(tensors)
    except PolicyArchiveError:
        raise
    except Exception as error:  # hostile tensors make torch raise any class
        raise PolicyArchiveError(
            f"the tensors must be those of a plain MlpPolicy of {algorithm}, but do not fit it "
            f"({_format_error(error)}); name the algorithm that trained it, without a custom extractor"
        ) from error
    network.set_training_mode(False)
    return Sb3Policy(network, builder, environment.start_action(panel))


def _activation(saved: Sb3Zip, stated: Activation | None, family: _Algorithm) -> str:
    """Activation of the hidden layers: the zip's, else the stated one, else the algorithm's default."""
    if saved.activation is None:
        return stated or family.default
    known = {layer.__name__: name for name, layer in ACTIVATIONS.items()}
    activation = known.get(saved.activation)
    if activation is None or stated not in {None, activation}:
        conflict = f"but {stated} is stated" if activation else f"which is none of {', '.join(known)}"
        raise PolicyArchiveError(
            f"the zip's hidden layers are {saved.activation}, {conflict}; leave activation out, or train with a "
            "supported one"
        )
    return activation


def _make_network(
    family: _Algorithm, tensors: Tensors, activation: type[nn.Module], observations: spaces.Box, actions: spaces.Box
) -> BasePolicy:
    n_observed, n_actions = observations.shape[0], actions.shape[0]
    actor = _hidden_sizes(tensors, family.actor, family.n_outputs[0], n_observed)
    if family is _ACTOR_CRITIC:
        critic = _hidden_sizes(tensors, family.critic, family.n_outputs[1], n_observed)
        sizes: dict[str, Any] = {"net_arch": {"pi": actor, "vf": critic}}
    else:
        prefixes = sorted({".".join(name.split(".")[:2]) for name in tensors if name.startswith("critic.qf")})
        critics = [_hidden_sizes(tensors, prefix, family.n_outputs[1], n_observed + n_actions) for prefix in prefixes]
        if not critics or any(critic != critics[0] for critic in critics):  # one large critic times many names: memory
            raise PolicyArchiveError("the critics of a policy must have equal layers, but these differ; save it again")
        sizes = {"net_arch": {"pi": actor, "qf": critics[0]}, "n_critics": len(critics)}
    return family.policy(observations, actions, lr_schedule=lambda _: 0.0, activation_fn=activation, **sizes)


def _layers(tensors: Tensors, prefix: str) -> list[Tensor]:
    """Weight matrices (out, in) of a sequence of layers, in order."""
    numbered = re.compile(rf"{re.escape(prefix)}\.(\d+)\.weight")
    layers = {int(match[1]): tensors[name] for name in tensors if (match := numbered.fullmatch(name))}
    return [layers[number] for number in sorted(layers)]


def _hidden_sizes(tensors: Tensors, prefix: str, n_outputs: int, n_inputs: int) -> list[int]:
    """Widths of the hidden layers; each must read the outputs of the one before, which bounds the network's size."""
    layers = _layers(tensors, prefix)
    for layer in layers:
        if layer.ndim != 2 or layer.shape[1] != n_inputs:
            raise PolicyArchiveError(
                f"each layer of {prefix} must read the outputs of the one before, here {n_inputs}, but one has the "
                f"shape {tuple(layer.shape)}; name the algorithm and the environment that trained it"
            )
        n_inputs = int(layer.shape[0])
    return [int(layer.shape[0]) for layer in layers[: len(layers) - n_outputs]]


def _require_fit(tensors: Tensors, algorithm: Algorithm, expected: tuple[int, int]) -> None:
    """Raise if the tensors do not fit the stated algorithm, environment and market."""
    family = _FAMILIES[algorithm]
    out = {"ppo": "action_net", "a2c": "action_net", "sac": "actor.mu"}.get(algorithm)
    ends = [*_layers(tensors, family.actor), *([tensors[f"{out}.weight"]] if f"{out}.weight" in tensors else [])]
    if not ends or any(layer.ndim != 2 for layer in ends):
        raise PolicyArchiveError(
            f"the zip holds no MlpPolicy of {algorithm}: its tensors are {', '.join(list(tensors)[:4])}, ...; "
            "name the algorithm that trained it"
        )
    found = int(ends[0].shape[1]), int(ends[-1].shape[0])
    if found != expected:
        raise PolicyArchiveError(
            f"the network has {found[0]} inputs and {found[1]} outputs, but the environment on this market has "
            f"{expected[0]} observations and {expected[1]} actions; state the environment and symbols of its training"
        )
