import io
import json
import pickle
import zipfile

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.policies.archive import PolicyArchiveError
from nvtrader_pipelines.policies.sb3_zip import DATA, MAX_BYTES, TENSORS, open_sb3, read_sb3_zip
from tests.markets import synthetic_panel

PANEL = synthetic_panel(160, 3)
SPEC = EnvSpec(lookback=5, episode_len=20)
WINDOW = (5, 100)
SCALER = SPEC.observation.fit(PANEL, *WINDOW)
LEARNERS = {
    "ppo": (PPO, {"n_steps": 32, "batch_size": 32, "n_epochs": 1}),
    "a2c": (A2C, {"policy_kwargs": {"net_arch": {"pi": [8], "vf": [16, 8]}, "activation_fn": torch.nn.ELU}}),
    "sac": (SAC, {"learning_starts": 8, "policy_kwargs": {"net_arch": [8, 8]}}),
    "td3": (TD3, {"learning_starts": 8, "policy_kwargs": {"net_arch": {"pi": [8], "qf": [16, 8]}}}),
}
ACTIVATIONS = {"a2c": "elu"}


def saved(algorithm):
    """A model of the library's own training, and the bytes it saves."""
    learner, settings = LEARNERS[algorithm]
    env = PortfolioEnv(PANEL, SPEC, first=WINDOW[0], last=WINDOW[1])
    model = learner("MlpPolicy", env, device="cpu", seed=3, **settings).learn(32)
    content = io.BytesIO()
    model.save(content)
    return model, content.getvalue()


@pytest.fixture(scope="module")
def ppo():
    return saved("ppo")


def repacked(content, **members):
    """The zip with some members replaced."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            target.writestr(name, members.get(name.replace(".", "_"), source.read(name)))
    return out.getvalue()


def with_tensors(content, tensors):
    """The zip with other tensors."""
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return repacked(content, policy_pth=buffer.getvalue())


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", LEARNERS)
def test_sb3_policy_matches_model_predict(algorithm):
    model, content = saved(algorithm)
    policy = open_sb3(read_sb3_zip(content), algorithm, ACTIVATIONS.get(algorithm), SPEC, SCALER, PANEL)
    env = PortfolioEnv(PANEL, SPEC, first=WINDOW[0], last=WINDOW[1])
    observation, _ = env.reset(seed=1)
    for _ in range(8):
        accounts = env.simulation.accounts
        t, account = int(accounts.t[0]), Account(accounts.weights[0], accounts.equity[0], accounts.peak[0])
        action, _ = model.predict(observation, deterministic=True)
        observation, *_, info = env.step(action)
        found = policy.decide(PANEL, t, account)
        assert found.action is not None
        assert found.action.tobytes() == action.tobytes()
        assert found.target is not None
        assert found.target.tobytes() == info["target_weights"].tobytes()


def test_zip_holds_version_and_timesteps(ppo):
    found = read_sb3_zip(ppo[1])
    assert (found.version[:2], found.num_timesteps) == ("2.", 32)


class Bomb:
    """Makes a folder when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import os

        return os.mkdir, (self.path,)


def test_pickles_in_the_zip_are_never_executed(ppo, tmp_path):
    path = tmp_path / "exploded"
    with pytest.raises(PolicyArchiveError):
        read_sb3_zip(with_tensors(ppo[1], {"log_std": Bomb(str(path))}))
    with pytest.raises(PolicyArchiveError):
        read_sb3_zip(repacked(ppo[1], policy_pth=pickle.dumps(Bomb(str(path)))))
    read_sb3_zip(repacked(ppo[1], pytorch_variables_pth=pickle.dumps(Bomb(str(path)))))
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"no zip", None], ids=["empty", "text", "another zip"])
def test_read_sb3_zip_raises_for_foreign_bytes(content):
    if content is None:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("x", "y")
        content = out.getvalue()
    with pytest.raises(PolicyArchiveError):
        read_sb3_zip(content)


def test_a_diverged_network_is_refused(ppo):
    tensors = {name: tensor.clone() for name, tensor in read_sb3_zip(ppo[1]).tensors.items()}
    tensors["action_net.bias"][0] = np.nan
    with pytest.raises(PolicyArchiveError):
        read_sb3_zip(with_tensors(ppo[1], tensors))


@pytest.mark.parametrize(
    ("algorithm", "spec"),
    [("ppo", SPEC.model_copy(update={"lookback": 9})), ("sac", SPEC)],
    ids=["environment", "algorithm"],
)
def test_open_sb3_raises_for_another_environment_or_algorithm(ppo, algorithm, spec):
    with pytest.raises(PolicyArchiveError):
        open_sb3(read_sb3_zip(ppo[1]), algorithm, None, spec, SCALER, PANEL)


def test_open_sb3_raises_for_extra_tensors(ppo):
    found = read_sb3_zip(ppo[1])
    found.tensors["features_extractor.cnn.weight"] = torch.zeros(1)
    with pytest.raises(PolicyArchiveError):
        open_sb3(found, "ppo", None, SPEC, SCALER, PANEL)


def with_facts(content, **facts):
    """The zip that says something else in plain text."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        data = json.loads(archive.read(DATA))
    return repacked(content, data=json.dumps({**data, **facts}))


def inner(content, compression):
    """The tensors' zip, its records stored or compressed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        tensors = archive.read(TENSORS)
    with zipfile.ZipFile(io.BytesIO(tensors)) as source, zipfile.ZipFile(out, "w", compression) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    return repacked(content, policy_pth=out.getvalue())


@pytest.mark.parametrize(
    "tensors",
    [
        {"x": torch.eye(3).to_sparse()},
        {"x": torch.zeros(3, device="meta")},
        {"x": torch.zeros(1).expand(1 << 40)},
        {"x": torch.zeros(3, dtype=torch.int64)},
        {"x": torch.zeros(3, dtype=torch.complex64)},
        {3: torch.zeros(3)},
        [torch.zeros(3)],
    ],
    ids=["sparse", "meta", "expanded", "integers", "complex", "number", "list"],
)
def test_read_sb3_zip_raises_unless_tensors_are_dense_floats(ppo, tensors):
    with pytest.raises(PolicyArchiveError):
        read_sb3_zip(with_tensors(ppo[1], tensors))


def test_read_sb3_zip_raises_for_compressed_tensors(ppo):
    read_sb3_zip(inner(ppo[1], zipfile.ZIP_STORED))
    with pytest.raises(PolicyArchiveError):
        read_sb3_zip(inner(ppo[1], zipfile.ZIP_DEFLATED))


def test_read_sb3_zip_raises_for_too_many_tensors(ppo):
    numbers = torch.zeros(1 << 20)
    many = {str(i): numbers for i in range(MAX_BYTES // numbers.nbytes + 1)}
    with pytest.raises(PolicyArchiveError):
        read_sb3_zip(with_tensors(ppo[1], many))


@pytest.mark.parametrize("at", range(0, 600, 17))
def test_zip_with_a_damaged_byte_is_read_or_raises(ppo, at):
    with zipfile.ZipFile(io.BytesIO(ppo[1])) as archive:
        tensors = bytearray(archive.read(TENSORS))
    at += tensors.index(b"data.pkl") + 8
    tensors[at] ^= 0xFF
    try:
        found = read_sb3_zip(repacked(ppo[1], policy_pth=bytes(tensors)))
    except PolicyArchiveError:
        return
    assert found.tensors.keys() == read_sb3_zip(ppo[1]).tensors.keys()


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA], ids=["deflated", "lzma"])
def test_read_sb3_zip_raises_for_broken_members(ppo, method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(DATA, "0123456789" * 50)
    broken = bytearray(out.getvalue())
    start = 30 + len(DATA)
    broken[start : start + 12] = b"\xff" * 12
    with pytest.raises(PolicyArchiveError):
        read_sb3_zip(bytes(broken))


def test_a_document_nested_too_deep_is_refused(ppo):
    with pytest.raises(PolicyArchiveError):
        read_sb3_zip(repacked(ppo[1], data="[" * 200_000))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("mlp_extractor.value_net.0.weight", torch.tensor(1.0)),
        ("mlp_extractor.value_net.0.weight", torch.zeros(1 << 40, 0)),
        ("mlp_extractor.value_net.2.weight", torch.zeros(1 << 40, 0)),
    ],
    ids=["a number", "first layer", "second layer"],
)
def test_open_sb3_raises_for_inconsistent_layers(ppo, name, tensor):
    found = read_sb3_zip(ppo[1])
    found.tensors[name] = tensor
    with pytest.raises(PolicyArchiveError):
        open_sb3(found, "ppo", None, SPEC, SCALER, PANEL)


def test_activation_comes_from_the_zip_and_must_not_contradict_it(ppo):
    relu = read_sb3_zip(
        with_facts(ppo[1], policy_kwargs={"activation_fn": "<class 'torch.nn.modules.activation.ReLU'>"})
    )
    account, t = Account(np.array([0.0, 0.0, 0.0, 1.0]), 1.0, 1.0), 50

    def action(saved, activation):
        return open_sb3(saved, "ppo", activation, SPEC, SCALER, PANEL).decide(PANEL, t, account).action.tobytes()

    plain = read_sb3_zip(ppo[1])
    assert action(relu, None) == action(relu, "relu") == action(plain, "relu") != action(plain, None)
    with pytest.raises(PolicyArchiveError):
        action(relu, "tanh")
    strange = read_sb3_zip(with_facts(ppo[1], policy_kwargs={"activation_fn": "<class 'mine.Snake'>"}))
    with pytest.raises(PolicyArchiveError):
        action(strange, None)


def test_open_sb3_raises_for_use_sde(ppo):
    with pytest.raises(PolicyArchiveError):
        open_sb3(read_sb3_zip(with_facts(ppo[1], use_sde=True)), "ppo", None, SPEC, SCALER, PANEL)


def test_read_sb3_zip_detects_vec_normalize(ppo):
    env = VecNormalize(DummyVecEnv([lambda: PortfolioEnv(PANEL, SPEC, first=WINDOW[0], last=WINDOW[1])]))
    content = io.BytesIO()
    PPO("MlpPolicy", env, n_steps=8, batch_size=8, n_epochs=1, device="cpu", seed=3).learn(8).save(content)
    assert read_sb3_zip(content.getvalue()).is_normalized
    assert not read_sb3_zip(ppo[1]).is_normalized
