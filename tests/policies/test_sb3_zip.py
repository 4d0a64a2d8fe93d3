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
from nvtrader_pipelines.policies.sb3_zip import DATA, MOST_BYTES, TENSORS, open_sb3, read_sb3_zip
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


@pytest.mark.parametrize("algorithm", LEARNERS)
def test_the_weights_are_the_very_ones_of_the_models_own_prediction(algorithm):
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


def test_the_zip_says_which_version_trained_it_and_for_how_long(ppo):
    found = read_sb3_zip(ppo[1])
    assert (found.version[:2], found.num_timesteps) == ("2.", 32)


class Bomb:
    """Makes a folder when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import os

        return os.mkdir, (self.path,)


def test_what_is_pickled_in_the_zip_is_never_executed(ppo, tmp_path):
    path = tmp_path / "exploded"
    buffer = io.BytesIO()
    torch.save({"log_std": Bomb(str(path))}, buffer)
    with pytest.raises(PolicyArchiveError, match="plain tensors"):
        read_sb3_zip(repacked(ppo[1], policy_pth=buffer.getvalue()))
    with pytest.raises(PolicyArchiveError, match="plain tensors"):
        read_sb3_zip(repacked(ppo[1], policy_pth=pickle.dumps(Bomb(str(path)))))
    read_sb3_zip(repacked(ppo[1], pytorch_variables_pth=pickle.dumps(Bomb(str(path)))))
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"no zip", None], ids=["empty", "text", "another zip"])
def test_what_is_no_saved_model_is_refused(content):
    if content is None:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("x", "y")
        content = out.getvalue()
    with pytest.raises(PolicyArchiveError, match=rf"zip of model.save\(\) with {DATA} and {TENSORS}"):
        read_sb3_zip(content)


def test_a_diverged_network_is_refused(ppo):
    tensors = {name: tensor.clone() for name, tensor in read_sb3_zip(ppo[1]).tensors.items()}
    tensors["action_net.bias"][0] = np.nan
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    with pytest.raises(PolicyArchiveError, match=r"finite numbers, but action_net.bias"):
        read_sb3_zip(repacked(ppo[1], policy_pth=buffer.getvalue()))


@pytest.mark.parametrize(
    ("algorithm", "spec", "sentence"),
    [
        ("ppo", SPEC.model_copy(update={"lookback": 9}), "reads 65 numbers and gives 4, but the environment .* 77"),
        ("sac", SPEC, "holds no MlpPolicy of sac"),
    ],
    ids=["environment", "algorithm"],
)
def test_another_environment_or_algorithm_than_it_was_trained_with_is_refused(ppo, algorithm, spec, sentence):
    with pytest.raises(PolicyArchiveError, match=sentence):
        open_sb3(read_sb3_zip(ppo[1]), algorithm, None, spec, SCALER, PANEL)


def test_tensors_beside_those_of_the_plain_network_are_refused(ppo):
    found = read_sb3_zip(ppo[1])
    found.tensors["features_extractor.cnn.weight"] = torch.zeros(1)
    with pytest.raises(PolicyArchiveError, match="plain MlpPolicy of ppo"):
        open_sb3(found, "ppo", None, SPEC, SCALER, PANEL)


def with_tensors(content, tensors):
    """The zip with other tensors."""
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return repacked(content, policy_pth=buffer.getvalue())


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
def test_tensors_that_are_not_dense_floats_by_name_are_refused(ppo, tensors):
    with pytest.raises(PolicyArchiveError, match="plain tensors"):
        read_sb3_zip(with_tensors(ppo[1], tensors))


def test_compressed_tensors_are_refused_before_they_fill_the_memory(ppo):
    read_sb3_zip(inner(ppo[1], zipfile.ZIP_STORED))
    with pytest.raises(PolicyArchiveError, match="compressed records"):
        read_sb3_zip(inner(ppo[1], zipfile.ZIP_DEFLATED))


def test_many_large_tensors_of_the_same_numbers_are_refused(ppo):
    numbers = torch.zeros(1 << 20)
    many = {str(i): numbers for i in range(MOST_BYTES // numbers.nbytes + 1)}
    with pytest.raises(PolicyArchiveError, match=r"all tensors of policy.pth has 260 MiB, more than 256"):
        read_sb3_zip(with_tensors(ppo[1], many))


@pytest.mark.parametrize("at", range(0, 600, 17))
def test_a_zip_with_a_byte_changed_is_read_or_refused(ppo, at):
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
def test_a_member_whose_compressed_bytes_are_broken_is_refused(ppo, method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(DATA, "0123456789" * 50)
    broken = bytearray(out.getvalue())
    start = 30 + len(DATA)
    broken[start : start + 12] = b"\xff" * 12
    with pytest.raises(PolicyArchiveError, match="cannot be read"):
        read_sb3_zip(bytes(broken))


def test_a_document_nested_too_deep_is_refused(ppo):
    with pytest.raises(PolicyArchiveError, match="cannot be read"):
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
def test_layers_that_do_not_follow_from_each_other_are_refused(ppo, name, tensor):
    found = read_sb3_zip(ppo[1])
    found.tensors[name] = tensor
    with pytest.raises(PolicyArchiveError, match=r"each layer of mlp_extractor.value_net must read"):
        open_sb3(found, "ppo", None, SPEC, SCALER, PANEL)


def test_the_activation_is_what_the_zip_says_and_a_contradiction_is_refused(ppo):
    relu = read_sb3_zip(
        with_facts(ppo[1], policy_kwargs={"activation_fn": "<class 'torch.nn.modules.activation.ReLU'>"})
    )
    account, t = Account(np.array([0.0, 0.0, 0.0, 1.0]), 1.0, 1.0), 50

    def action(saved, activation):
        return open_sb3(saved, "ppo", activation, SPEC, SCALER, PANEL).decide(PANEL, t, account).action.tobytes()

    plain = read_sb3_zip(ppo[1])
    assert action(relu, None) == action(relu, "relu") == action(plain, "relu") != action(plain, None)
    with pytest.raises(PolicyArchiveError, match="hidden layers are ReLU, but tanh is stated"):
        action(relu, "tanh")
    strange = read_sb3_zip(with_facts(ppo[1], policy_kwargs={"activation_fn": "<class 'mine.Snake'>"}))
    with pytest.raises(PolicyArchiveError, match="Snake, which is none of Tanh, ReLU"):
        action(strange, None)


def test_exploration_by_the_state_is_refused_by_its_name(ppo):
    with pytest.raises(PolicyArchiveError, match="use_sde"):
        open_sb3(read_sb3_zip(with_facts(ppo[1], use_sde=True)), "ppo", None, SPEC, SCALER, PANEL)


def test_a_model_trained_behind_vec_normalize_is_known_as_such(ppo):
    env = VecNormalize(DummyVecEnv([lambda: PortfolioEnv(PANEL, SPEC, first=WINDOW[0], last=WINDOW[1])]))
    content = io.BytesIO()
    PPO("MlpPolicy", env, n_steps=8, batch_size=8, n_epochs=1, device="cpu", seed=3).learn(8).save(content)
    assert read_sb3_zip(content.getvalue()).is_normalized
    assert not read_sb3_zip(ppo[1]).is_normalized
