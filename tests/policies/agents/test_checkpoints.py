import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from nvtrader_pipelines.policies.agents import TrainingHooks
from nvtrader_pipelines.policies.agents.checkpoints import CheckpointError, pack, unpack
from tests.markets import synthetic_panel
from tests.policies.agents.learners import EVERYTHING, TOTAL, a2c, bits, ppo, recurrent_ppo, sac, trained
from tests.policies.small_learners import RESIDUAL_SPEC, SPEC, WINDOW

pytestmark = pytest.mark.slow

PANEL = synthetic_panel(160, 3)
ON_POLICY = pytest.mark.parametrize("make", [ppo, a2c, recurrent_ppo])


def saved_while(make, **where):
    saved = []
    model, log = trained(make, PANEL, TrainingHooks(checkpoint=saved.append, sample_rate=0.5), **where)
    return model, log, saved


def resumed(make, content, panel=PANEL, sample_rate=0.5, **where):
    saved, seen = [], []
    hooks = TrainingHooks(seen.append, saved.append, content, sample_rate)
    return (*trained(make, panel, hooks, **where), saved, seen)


@pytest.fixture(scope="module")
def checkpoint():
    return saved_while(ppo)[2][4]


@pytest.mark.nightly
@ON_POLICY
@pytest.mark.parametrize("spec", [SPEC, RESIDUAL_SPEC, EVERYTHING], ids=["simplex", "residual", "everything"])
def test_resumed_training_equals_an_uninterrupted_one(make, spec):
    whole, log, saved = saved_while(make, spec=spec)
    assert len(saved) == 9
    for at in (2, 8):  # far from the end, and right before it
        np.random.seed(at)  # noqa: NPY002 - the global generators are elsewhere, as in another process
        torch.manual_seed(at)
        model, log_of_rest, saved_later, seen = resumed(make, saved[at], spec=spec)
        assert bits(model) == bits(whole)
        assert log_of_rest.points == log.points
        assert log_of_rest.rollouts.equals(log.rollouts)
        assert log.points[-len(seen) :] == [point[:2] for point in seen]  # only new points are reported
        assert saved_later == saved[at + 1 :]  # which also holds the optimizer and every generator


def test_a_training_can_be_resumed_over_and_over():
    whole, log, saved = saved_while(a2c)
    content = saved[0]
    for _ in range(8):
        content = resumed(a2c, content)[2][0]
    assert content == saved[-1]
    model, rest, *_ = resumed(a2c, content)
    assert bits(model) == bits(whole)
    assert rest.rollouts.equals(log.rollouts)


def test_a_checkpoint_is_a_zip_of_tensors_and_json(checkpoint):
    with zipfile.ZipFile(io.BytesIO(checkpoint)) as archive:
        assert archive.namelist() == ["arrays.safetensors", "facts.json"]
        assert archive.read("facts.json").startswith(b'{"algorithm": "PPO", "timesteps": 480')


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_truncated_checkpoint_raises(checkpoint, kept):
    with pytest.raises(CheckpointError):
        resumed(ppo, checkpoint[: int(kept * len(checkpoint))])


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_damaged_checkpoint_raises(checkpoint, at):
    damaged = bytearray(checkpoint)
    damaged[int(at * len(checkpoint))] ^= 1
    with pytest.raises(CheckpointError):
        resumed(ppo, bytes(damaged))


def test_zip_of_other_content_raises():
    with pytest.raises(CheckpointError):
        resumed(ppo, pack({"a": np.zeros(3)}, {}))


def other_network(env, seed):
    return ppo(env, seed, policy_kwargs={"net_arch": [16]})


FOREIGN = {
    "algorithm": {"make": a2c},
    "seed": {"seed": 1},
    "total": {"total": 2 * TOTAL},
    "rate": {"sample_rate": 0.1},
    "portfolios": {"n": 3},
    "window": {"window": (WINDOW[0], WINDOW[1] - 1)},
    "environment": {"spec": SPEC.model_copy(update={"rebal_freq": 3})},
    "market": {"panel": replace(PANEL, close_returns=0.5 * PANEL.close_returns)},
    "network": {"make": other_network},
}


@pytest.mark.parametrize("changed", FOREIGN.values(), ids=FOREIGN)
def test_checkpoint_of_another_training_raises(checkpoint, changed):
    with pytest.raises(CheckpointError):
        resumed(**{"make": ppo, "content": checkpoint, **changed})


def exploring(env, seed):
    return a2c(env, seed, use_sde=True)


@pytest.mark.parametrize("make", [sac, exploring])
def test_non_resumable_model_raises_and_saves_no_checkpoint(make, checkpoint):
    with pytest.raises(CheckpointError):
        resumed(make, checkpoint)
    assert saved_while(make, total=240)[2] == []


def test_pack_round_trips():
    arrays = {
        "weights": torch.arange(6.0).reshape(2, 3).T,  # not contiguous
        "flags": np.array([True, False]),
        "counts": np.arange(3),
        "bytes": np.frombuffer(b"abc", dtype=np.uint8),
        "scalar": torch.tensor(0.5),
        "empty": np.zeros((0, 4), dtype=np.float32),
    }
    facts = {"large": 2**127 + 1, "small": 5e-324, "names": ["a"], "none": None}
    found, found_facts = unpack(pack(arrays, facts))
    assert found_facts == facts
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        expected = array if isinstance(array, torch.Tensor) else torch.from_numpy(array.copy())
        assert found[name].dtype == expected.dtype
        assert torch.equal(found[name], expected)
    assert pack(arrays, facts) == pack(found, found_facts)
