"""Checkpoints of a training, without pickle; a resumed training equals an uninterrupted one bit for bit."""

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
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch import Tensor

from nvtrader_pipelines.policies.agents.callbacks import Algorithm, Schedule, TrainingCallback
from nvtrader_pipelines.policies.agents.training_log import CurveLog
from nvtrader_pipelines.policies.fit import TrainingHooks
from nvtrader_pipelines.policies.shared_vec_env import Log, SharedVecEnv

ARRAYS, FACTS = "arrays.safetensors", "facts.json"
EPOCH = (1980, 1, 1, 0, 0, 0)  # constant time stamps, so that equal content gives equal bytes


DAMAGED = (zipfile.BadZipFile, SafetensorError, PolarsError, OSError, EOFError, LookupError, ValueError, TypeError)


class CheckpointError(ValueError):
    """Checkpoint that a training cannot resume from."""


def learn(
    model: Algorithm,
    env: SharedVecEnv[Log],
    total_timesteps: int,
    hooks: TrainingHooks,
    seed: int,
    ent_coef: Schedule | None = None,
) -> Log:
    """Train a Stable-Baselines3 model on `env`, from the start or from the hooks' checkpoint.

    On-policy models without state-dependent exploration save checkpoints and resume from them: tensors, curve and
    sampled episodes then equal those of an uninterrupted training bit for bit. `ent_coef` gives the weight of an
    on-policy model's entropy bonus; without it, the model's own stays.

    Raises:
        CheckpointError: if the hooks have a checkpoint and this training cannot resume from it.
    """
    log = env.start_log(hooks, total_timesteps, seed)
    model.set_logger(log.logger)
    resumable = model if isinstance(model, OnPolicyAlgorithm) and not model.use_sde else None
    if hooks.resume_from is not None:
        if resumable is None:
            raise CheckpointError(f"a training by {type(model).__name__} cannot be resumed; start it again")
        restore_checkpoint(hooks.resume_from, resumable, env, log)
    save = None if resumable is None else lambda: save_checkpoint(resumable, env, log)
    model.learn(
        total_timesteps - model.num_timesteps,
        callback=TrainingCallback(log, model, env, save, ent_coef),
        log_interval=None,  # the callback dumps the logger  # pyright: ignore[reportArgumentType] - SB3 accepts None
        reset_num_timesteps=hooks.resume_from is None,
    )
    return log


def save_checkpoint(model: OnPolicyAlgorithm, env: SharedVecEnv[Any], log: CurveLog) -> bytes:
    """Return the state of a training at the start of a rollout."""
    environment, log_state, optimizer = env.state(), log.state(), optimizer_state(model.policy.optimizer)
    arrays = {
        **add_prefix("policy", model.policy.state_dict()),
        **add_prefix("optimizer", optimizer[0]),
        **add_prefix("env", environment[0]),
        **add_prefix("log", log_state[0]),
        **add_prefix("lstm", _lstm_states(model)),
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


def restore_checkpoint(content: bytes, model: OnPolicyAlgorithm, env: SharedVecEnv[Any], log: CurveLog) -> None:
    """Bring a new training into a saved state.

    Raises:
        CheckpointError: if the checkpoint is damaged or of another training, which is then unusable.
    """
    arrays, facts = unpack(content)
    with checkpoint_errors():
        if facts["algorithm"] != type(model).__name__:
            raise ValueError(f"its algorithm is {facts['algorithm']}, not {type(model).__name__}")
        log.restore(numpy_arrays(arrays, "log"), facts["log"])
        env.restore(numpy_arrays(arrays, "env"), facts["env"])
        model.policy.load_state_dict(strip_prefix("policy", arrays))
        restore_optimizer(model.policy.optimizer, strip_prefix("optimizer", arrays), facts["optimizer"])
        _restore_progress(model, env, arrays, facts)
        torch.set_rng_state(arrays["torch_random"])
        restore_numpy_random(facts["numpy_random"])


def pack(arrays: Mapping[str, Tensor | NDArray[Any]], facts: dict[str, Any]) -> bytes:
    """Pack arrays and JSON values into one file; equal content gives equal bytes."""
    tensors = {name: _tensor(array) for name, array in arrays.items()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in ((ARRAYS, save(tensors)), (FACTS, json.dumps(facts).encode())):
            archive.writestr(zipfile.ZipInfo(name, date_time=EPOCH), content)
    return buffer.getvalue()


def unpack(content: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Unpack a file of `pack`, every array as a tensor.

    Raises:
        CheckpointError: if the bytes are damaged or not a checkpoint.
    """
    with checkpoint_errors(), zipfile.ZipFile(io.BytesIO(content)) as archive:
        return load(archive.read(ARRAYS)), json.loads(archive.read(FACTS))


@contextmanager
def checkpoint_errors() -> Generator[None, None, None]:
    """Turn the errors of reading a damaged or foreign checkpoint into a `CheckpointError`."""
    try:
        yield
    except CheckpointError:
        raise
    except (*DAMAGED, RuntimeError) as error:  # the latter by tensors of other names or shapes
        raise CheckpointError(
            f"a checkpoint must belong to this training, but this one cannot be used ({error}); "
            "start the training again"
        ) from error


def add_prefix(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Prefix the arrays' names, with a dot between."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def strip_prefix(prefix: str, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Select the arrays with a prefix and remove it."""
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


def numpy_arrays(arrays: Mapping[str, Tensor], prefix: str) -> dict[str, NDArray[Any]]:
    """Select the arrays with a prefix, remove it and convert them to NumPy."""
    return {name: array.numpy() for name, array in strip_prefix(prefix, arrays).items()}


def optimizer_state(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """State of the optimizer per parameter: tensors, and plain numbers."""
    entries = {
        f"{parameter}.{name}": value
        for parameter, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }
    tensors = {name: value for name, value in entries.items() if isinstance(value, Tensor)}
    return tensors, {name: value for name, value in entries.items() if name not in tensors}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Load a saved state into a new optimizer; its settings stay."""
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**tensors, **numbers}.items():
        parameter, _, entry = name.partition(".")
        state.setdefault(int(parameter), {})[entry] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def numpy_random() -> dict[str, Any]:
    """State of NumPy's global generator, which shuffles SB3's rollout buffers."""
    state = np.random.get_state(legacy=False)  # noqa: NPY002 - the library's generator
    return {**state, "state": {**state["state"], "key": state["state"]["key"].tolist()}}


def restore_numpy_random(state: dict[str, Any]) -> None:
    """Set the state of NumPy's global generator."""
    key = np.array(state["state"]["key"], dtype=np.uint32)
    np.random.set_state({**state, "state": {**state["state"], "key": key}})  # noqa: NPY002


def _tensor(array: Tensor | NDArray[Any]) -> Tensor:
    """Copy an array: safetensors rejects tensors that share memory."""
    if isinstance(array, Tensor):
        return array.detach().clone(memory_format=torch.contiguous_format)
    return torch.from_numpy(np.array(array, order="C"))


def _lstm_states(model: OnPolicyAlgorithm) -> dict[str, Tensor]:
    states = model._last_lstm_states if isinstance(model, RecurrentPPO) else None  # noqa: SLF001
    if states is None:
        return {}
    return {"pi.h": states.pi[0], "pi.c": states.pi[1], "vf.h": states.vf[0], "vf.c": states.vf[1]}


def _restore_progress(
    model: OnPolicyAlgorithm, env: SharedVecEnv[Any], arrays: Mapping[str, Tensor], facts: dict[str, Any]
) -> None:
    """Restore SB3's progress between two rollouts, which has no public names."""
    model.num_timesteps = facts["timesteps"]
    model._n_updates = facts["updates"]  # noqa: SLF001
    model._last_obs = env.observation  # noqa: SLF001
    model._last_episode_starts = arrays["episode_starts"].numpy()  # noqa: SLF001
    if isinstance(model, RecurrentPPO):
        lstm = strip_prefix("lstm", arrays)
        states = RNNStates(pi=(lstm["pi.h"], lstm["pi.c"]), vf=(lstm["vf.h"], lstm["vf.c"]))
        model._last_lstm_states = states  # noqa: SLF001
