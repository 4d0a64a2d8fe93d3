import io
import pickle
import zipfile

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, PPO, SAC, TD3

from nvtrader_pipelines.envs.dynamics import Account
from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.policies.archive import PolicyArchiveError
from nvtrader_pipelines.policies.sb3_zip import DATA, TENSORS, open_sb3, read_sb3_zip
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
