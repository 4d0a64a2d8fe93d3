"""Policies that Stable-Baselines3 trained elsewhere on our environment, read from their zip without unpickling."""

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
from nvtrader_pipelines.envs.actions import ActionMap
from nvtrader_pipelines.envs.observations import ObservationBuilder, ObservationScaler
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.activations import MOST_BYTES, Activation, Algorithm
from nvtrader_pipelines.policies.archive import PolicyArchiveError
from nvtrader_pipelines.policies.policy import Decision

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
    """What is read of the zip."""

    tensors: Tensors
    version: str  # of Stable-Baselines3; empty where the zip does not say
    num_timesteps: int | None
    sha256: str  # of the file
    activation: str | None = None  # torch's class of the hidden layers, such as ReLU; None where the zip does not say
    use_sde: bool = False  # explored by state-dependent noise
    is_normalized: bool = False  # trained behind VecNormalize, whose statistics are not in the zip


class _Family(NamedTuple):
    """How an algorithm's policy is built, and where its layers are."""

    policy: type[BasePolicy]
    default: Activation
    actor: str  # before the number of a layer
    critic: str
    n_outputs: tuple[int, int]  # layers of actor and critic in the same sequence that are not hidden


_ACTOR_CRITIC = _Family(ActorCriticPolicy, "tanh", "mlp_extractor.policy_net", "mlp_extractor.value_net", (0, 0))
_FAMILIES: dict[str, _Family] = {
    "ppo": _ACTOR_CRITIC,
    "a2c": _ACTOR_CRITIC,
    "sac": _Family(SACPolicy, "relu", "actor.latent_pi", "critic.qf0", (0, 1)),
    "td3": _Family(TD3Policy, "relu", "actor.mu", "critic.qf0", (1, 1)),
}


def read_sb3_zip(content: bytes) -> Sb3Zip:
    """The tensors of the policy and the plain facts beside them; nothing in the zip is executed.

    Raises:
        PolicyArchiveError: if the bytes are no zip of `model.save()`, or its tensors are not plain tensors.
    """
    try:
        _require_small("the file", len(content))
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            data = json.loads(_member(archive, DATA))
            tensors = _plain(_tensors(_member(archive, TENSORS)))
            version = _member(archive, VERSION).decode() if VERSION in archive.namelist() else ""
        return _described(tensors, version.strip(), data, hashlib.sha256(content).hexdigest())
    except PolicyArchiveError:
        raise
    except Exception as error:  # zip, JSON and torch raise anything at bytes made to break them
        raise PolicyArchiveError(
            f"a policy of Stable-Baselines3 must be the zip of model.save() with {DATA} and {TENSORS} of plain "
            f"tensors, but this one cannot be read ({_said(error)}); save the model again"
        ) from error


def _said(error: Exception) -> str:
    """What an error says, in a line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def _require_small(what: str, n_bytes: int) -> None:
    if n_bytes > MOST_BYTES:
        raise ValueError(f"{what} has {n_bytes >> 20} MiB, more than {MOST_BYTES >> 20}")


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    _require_small(name, archive.getinfo(name).file_size)
    return archive.read(name)


def _tensors(content: bytes) -> Any:
    if not zipfile.is_zipfile(io.BytesIO(content)):  # torch's format of before 2020 is a bare pickle
        raise ValueError(f"{TENSORS} is not in torch's zip format")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        records = archive.infolist()
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):  # torch.save compresses none
        raise ValueError(f"{TENSORS} holds compressed records, whose size only shows when they fill the memory")
    _require_small(f"what {TENSORS} unpacks to", sum(record.file_size for record in records))
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _plain(saved: Any) -> Tensors:
    found = saved if isinstance(saved, dict) else {}
    strange = [str(name) for name, value in found.items() if not (isinstance(name, str) and _is_plain(value))]
    if strange or not found:
        raise PolicyArchiveError(
            f"{TENSORS} must be a mapping of names to plain tensors, dense and of floating-point numbers, but holds "
            f"{', '.join(strange[:3])[:200] or type(saved).__name__}; save the model again"
        )
    _require_small(f"all tensors of {TENSORS}", sum(each.numel() * each.element_size() for each in found.values()))
    broken = next((name for name, tensor in found.items() if not torch.isfinite(tensor).all()), None)
    if broken is not None:
        raise PolicyArchiveError(f"a policy must hold finite numbers, but {broken} does not: its training diverged")
    return found


def _is_plain(value: Any) -> bool:
    """Whether it is a dense tensor of floats in memory, each of whose numbers is there."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        return False
    return value.is_floating_point() and not value.is_quantized and value.is_contiguous()


def _described(tensors: Tensors, version: str, data: Any, sha256: str) -> Sb3Zip:
    """With what the document beside the tensors says in plain text."""
    facts = data if isinstance(data, dict) else {}
    count, kwargs = facts.get("num_timesteps"), facts.get("policy_kwargs")
    activation = kwargs.get("activation_fn") if isinstance(kwargs, dict) else None
    named = re.fullmatch(r"<class '(?:\w+\.)*(\w+)'>", activation) if isinstance(activation, str) else None
    return Sb3Zip(
        tensors=tensors,
        version=version,
        num_timesteps=count if isinstance(count, int) else None,
        sha256=sha256,
        activation=named[1] if named else None,
        use_sde=facts.get("use_sde") is True,
        is_normalized=facts.get("_last_original_obs") is not None,  # the library fills it behind VecNormalize only
    )


class Sb3Policy:
    """The network's deterministic action, as `model.predict` gives it, and the weights that it stands for."""

    def __init__(self, network: BasePolicy, builder: ObservationBuilder, weights: ActionMap) -> None:
        self._network, self._builder, self._map = network, builder, weights

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """The weights wanted at the close of session `t`."""
        at = np.array([t])
        view = AccountView(account.weights[None, :], np.array([account.drawdown]))
        action, _ = self._network.predict(self._builder.observe(at, view), deterministic=True)
        return Decision(target=self._map(action, at)[0], action=action[0])


def open_sb3(
    saved: Sb3Zip,
    algorithm: Algorithm,
    activation: Activation | None,
    environment: EnvSpec,
    scaler: ObservationScaler,
    panel: MarketPanel,
) -> Sb3Policy:
    """The policy on one panel; layers and their widths are those of the tensors.

    Args:
        saved: the zip.
        algorithm: that trained it.
        activation: of the hidden layers; None takes the algorithm's own.
        environment: in which it was trained.
        scaler: of the observation, as it was in training.
        panel: the market.

    Raises:
        PolicyArchiveError: if the tensors are not those of the algorithm's MLP policy on this environment and panel.
    """
    torch.set_num_threads(1)
    builder = environment.observation.start(panel, scaler, environment.lookback)
    size = environment.action.size(len(panel.symbols))
    family, tensors = _FAMILIES[algorithm], saved.tensors
    if saved.use_sde:
        raise PolicyArchiveError(
            "the zip says that it was trained with use_sde, whose policy has other layers; train it without"
        )
    _require_fit(tensors, algorithm, (builder.length, size.length))
    hidden = ACTIVATIONS[_activation(saved, activation, family)]
    observed = spaces.Box(-np.inf, np.inf, (builder.length,), np.float32)
    actions = spaces.Box(-size.bound, size.bound, (size.length,), np.float32)
    try:
        network = _network(family, tensors, hidden, observed, actions)
        network.load_state_dict(tensors)
    except PolicyArchiveError:
        raise
    except Exception as error:  # torch raises anything at tensors made to break it
        raise PolicyArchiveError(
            f"the zip's tensors are not those of a plain MlpPolicy of {algorithm} "
            f"({_said(error)}); name the algorithm that trained it, without its own extractor"
        ) from error
    network.set_training_mode(False)
    return Sb3Policy(network, builder, environment.action.start(panel))


def _activation(saved: Sb3Zip, stated: Activation | None, family: _Family) -> str:
    """Of the hidden layers: as the zip says, else as stated, else the algorithm's own."""
    if saved.activation is None:
        return stated or family.default
    known = {layer.__name__: name for name, layer in ACTIVATIONS.items()}
    found = known.get(saved.activation)
    if found is None or stated not in {None, found}:
        told = f"but {stated} is stated" if found else f"which is none of {', '.join(known)}"
        raise PolicyArchiveError(
            f"the zip says that its hidden layers are {saved.activation}, {told}; leave activation out, or train it "
            "with one of these"
        )
    return found


def _network(
    family: _Family, tensors: Tensors, activation: type[nn.Module], observed: spaces.Box, actions: spaces.Box
) -> BasePolicy:
    n_observed, n_actions = observed.shape[0], actions.shape[0]
    actor = _hidden(tensors, family.actor, family.n_outputs[0], n_observed)
    if family is _ACTOR_CRITIC:
        critic = _hidden(tensors, family.critic, family.n_outputs[1], n_observed)
        more: dict[str, Any] = {"net_arch": {"pi": actor, "vf": critic}}
    else:
        prefixes = sorted({".".join(name.split(".")[:2]) for name in tensors if name.startswith("critic.qf")})
        critics = [_hidden(tensors, each, family.n_outputs[1], n_observed + n_actions) for each in prefixes]
        if not critics or any(critic != critics[0] for critic in critics):  # else one big and many names fill memory
            raise PolicyArchiveError("the critics of a policy must have the same layers, but these differ; save again")
        more = {"net_arch": {"pi": actor, "qf": critics[0]}, "n_critics": len(critics)}
    return family.policy(observed, actions, lr_schedule=lambda _: 0.0, activation_fn=activation, **more)


def _layers(tensors: Tensors, prefix: str) -> list[Tensor]:
    """The weight matrices (out, in) of a sequence of layers, in order."""
    numbered = re.compile(rf"{re.escape(prefix)}\.(\d+)\.weight")
    found = {int(match[1]): tensors[name] for name in tensors if (match := numbered.fullmatch(name))}
    return [found[number] for number in sorted(found)]


def _hidden(tensors: Tensors, prefix: str, n_outputs: int, n_inputs: int) -> list[int]:
    """Widths of the hidden layers, each of which reads what the one before gives: so the network is no larger."""
    layers = _layers(tensors, prefix)
    for layer in layers:
        if layer.ndim != 2 or layer.shape[1] != n_inputs:
            raise PolicyArchiveError(
                f"each layer of {prefix} must read what the one before gives, here {n_inputs} numbers, but one has the "
                f"shape {tuple(layer.shape)}; name the algorithm and the environment that trained it"
            )
        n_inputs = int(layer.shape[0])
    return [int(layer.shape[0]) for layer in layers[: len(layers) - n_outputs]]


def _require_fit(tensors: Tensors, algorithm: Algorithm, wanted: tuple[int, int]) -> None:
    """Say in words which of environment, market and algorithm is another than stated."""
    family = _FAMILIES[algorithm]
    out = {"ppo": "action_net", "a2c": "action_net", "sac": "actor.mu"}.get(algorithm)
    ends = [*_layers(tensors, family.actor), *([tensors[f"{out}.weight"]] if f"{out}.weight" in tensors else [])]
    if not ends or any(layer.ndim != 2 for layer in ends):
        raise PolicyArchiveError(
            f"the zip holds no MlpPolicy of {algorithm}: its tensors are {', '.join(list(tensors)[:4])}, ...; "
            "name the algorithm that trained it"
        )
    found = int(ends[0].shape[1]), int(ends[-1].shape[0])
    if found != wanted:
        raise PolicyArchiveError(
            f"the network reads {found[0]} numbers and gives {found[1]}, but the environment on this market shows "
            f"{wanted[0]} and takes {wanted[1]}; state the environment and symbols it was trained with"
        )
