"""A training as bytes, without pickle, from which it goes on as if it had never stopped."""

import io
import json
import zipfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from polars.exceptions import PolarsError
from safetensors import SafetensorError
from safetensors.torch import load, save
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch import Tensor

from nvtrader_pipelines.policies.agents.callbacks import TrainingCallback, TrainingLog
from nvtrader_pipelines.policies.fit import TrainingHooks
from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv

ARRAYS, FACTS = "arrays.safetensors", "facts.json"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the zip's time stamps carry nothing


class CheckpointError(ValueError):
    """A checkpoint that this training cannot go on from; it has to start afresh."""


def learn(
    model: BaseAlgorithm, env: PortfolioVecEnv, total_timesteps: int, hooks: TrainingHooks, seed: int
) -> TrainingLog:
    """Train a Stable-Baselines3 model made on `env`, from the start or from the hooks' checkpoint, and log it.

    On-policy models without state-dependent exploration hand out checkpoints and resume from them: the tensors, the
    curve and the sampled episodes are then bit for bit those of a training that never stopped.

    Raises:
        CheckpointError: if there is a checkpoint to resume from and this training cannot.
    """
    log = TrainingLog(hooks, env.simulation, total_timesteps, seed)
    model.set_logger(Logger(None, []))  # SB3's own would leave a folder behind per run
    resumable = model if isinstance(model, OnPolicyAlgorithm) and not model.use_sde else None
    if hooks.resume_from is not None:
        if resumable is None:
            raise CheckpointError(f"a training by {type(model).__name__} cannot be resumed; start it afresh")
        restore_checkpoint(hooks.resume_from, resumable, env, log)
    keep = None if resumable is None else lambda: save_checkpoint(resumable, env, log)
    model.learn(
        total_timesteps - model.num_timesteps,
        callback=TrainingCallback(log, env, keep),
        reset_num_timesteps=hooks.resume_from is None,
    )
    return log


def save_checkpoint(model: OnPolicyAlgorithm, env: PortfolioVecEnv, log: TrainingLog) -> bytes:
    """The state of a training at the start of a rollout."""
    environment, log_state, optimizer = env.state(), log.state(), optimizer_state(model.policy.optimizer)
    arrays = {
        **prefixed("policy", model.policy.state_dict()),
        **prefixed("optimizer", optimizer[0]),
        **prefixed("env", environment[0]),
        **prefixed("log", log_state[0]),
        **prefixed("lstm", _lstm_states(model)),
        "episode_starts": model._last_episode_starts,  # noqa: SLF001 - SB3 has no public name for it
        "torch_random": torch.get_rng_state(),
    }
    facts = {
        "algorithm": type(model).__name__,
        "timesteps": int(model.num_timesteps),
        "updates": model._n_updates,  # noqa: SLF001
        "optimizer": optimizer[1],
        "env": environment[1],
        "log": log_state[1],
        "numpy_random": numpy_random(),
    }
    return pack(arrays, facts)


def restore_checkpoint(content: bytes, model: OnPolicyAlgorithm, env: PortfolioVecEnv, log: TrainingLog) -> None:
    """Put a freshly made training into the state that was saved.

    Raises:
        CheckpointError: if the checkpoint is damaged, or of another training; the training is then of no more use.
    """
    arrays, facts = unpack(content)
    with refused():
        if facts["algorithm"] != type(model).__name__:
            raise ValueError(f"it is of {facts['algorithm']}, not {type(model).__name__}")
        log.restore(numpy_arrays(arrays, "log"), facts["log"])
        env.restore(numpy_arrays(arrays, "env"), facts["env"])
        model.policy.load_state_dict(under("policy", arrays))
        restore_optimizer(model.policy.optimizer, under("optimizer", arrays), facts["optimizer"])
        _restore_progress(model, env, arrays, facts)
        torch.set_rng_state(arrays["torch_random"])
        restore_numpy_random(facts["numpy_random"])


def pack(arrays: Mapping[str, Tensor | NDArray[Any]], facts: dict[str, Any]) -> bytes:
    """Arrays and facts that JSON can hold as one file; the same content gives the same bytes."""
    tensors = {name: _tensor(array) for name, array in arrays.items()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in ((ARRAYS, save(tensors)), (FACTS, json.dumps(facts).encode())):
            archive.writestr(zipfile.ZipInfo(name, date_time=EPOCH), content)
    return buffer.getvalue()


def unpack(content: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What was packed, every array as a tensor.

    Raises:
        CheckpointError: if the bytes are damaged or no such file.
    """
    with refused(), zipfile.ZipFile(io.BytesIO(content)) as archive:
        return load(archive.read(ARRAYS)), json.loads(archive.read(FACTS))


@contextmanager
def refused() -> Generator[None, None, None]:
    """Turn what reading a damaged or foreign checkpoint raises into a `CheckpointError`."""
    try:
        yield
    except CheckpointError:
        raise
    except (zipfile.BadZipFile, SafetensorError, OSError, EOFError, LookupError, ValueError, TypeError) as error:
        raise CheckpointError(_refusal(error)) from error
    except (RuntimeError, PolarsError) as error:  # tensors of other names or shapes, rows that are none
        raise CheckpointError(_refusal(error)) from error


def _refusal(error: Exception) -> str:
    return f"a checkpoint must be one of this very training, but this one cannot be used ({error}); start it afresh"


def prefixed(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays under dotted names."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def under(prefix: str, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The arrays that were `prefixed`, by their own names."""
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


def numpy_arrays(arrays: Mapping[str, Tensor], prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays that were `prefixed`, as NumPy's."""
    return {name: array.numpy() for name, array in under(prefix, arrays).items()}


def optimizer_state(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What the optimizer has gathered of each parameter: tensors, and plain numbers."""
    entries = {
        f"{parameter}.{name}": value
        for parameter, gathered in optimizer.state_dict()["state"].items()
        for name, value in gathered.items()
    }
    tensors = {name: value for name, value in entries.items() if isinstance(value, Tensor)}
    return tensors, {name: value for name, value in entries.items() if name not in tensors}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Give a freshly made optimizer what another had gathered; its own settings stay."""
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**tensors, **numbers}.items():
        parameter, _, entry = name.partition(".")
        state.setdefault(int(parameter), {})[entry] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def numpy_random() -> dict[str, Any]:
    """The state of NumPy's global generator, which SB3's rollout buffers shuffle with."""
    state = np.random.get_state(legacy=False)  # noqa: NPY002 - theirs, not ours
    return {**state, "state": {**state["state"], "key": state["state"]["key"].tolist()}}


def restore_numpy_random(state: dict[str, Any]) -> None:
    """Put NumPy's global generator into a state."""
    key = np.array(state["state"]["key"], dtype=np.uint32)
    np.random.set_state({**state, "state": {**state["state"], "key": key}})  # noqa: NPY002


def _tensor(array: Tensor | NDArray[Any]) -> Tensor:
    """A copy of its own; safetensors takes no tensors that share memory."""
    if isinstance(array, Tensor):
        return array.detach().clone(memory_format=torch.contiguous_format)
    return torch.from_numpy(np.array(array, order="C"))


def _lstm_states(model: OnPolicyAlgorithm) -> dict[str, Tensor]:
    states = model._last_lstm_states if isinstance(model, RecurrentPPO) else None  # noqa: SLF001
    if states is None:
        return {}
    return {"pi.h": states.pi[0], "pi.c": states.pi[1], "vf.h": states.vf[0], "vf.c": states.vf[1]}


def _restore_progress(
    model: OnPolicyAlgorithm, env: PortfolioVecEnv, arrays: Mapping[str, Tensor], facts: dict[str, Any]
) -> None:
    """Where SB3 stood between two rollouts; it has no public names for these."""
    model.num_timesteps = facts["timesteps"]
    model._n_updates = facts["updates"]  # noqa: SLF001
    model._last_obs = env.observation  # noqa: SLF001
    model._last_episode_starts = arrays["episode_starts"].numpy()  # noqa: SLF001
    if isinstance(model, RecurrentPPO):
        lstm = under("lstm", arrays)
        states = RNNStates(pi=(lstm["pi.h"], lstm["pi.c"]), vf=(lstm["vf.h"], lstm["vf.c"]))
        model._last_lstm_states = states  # noqa: SLF001
