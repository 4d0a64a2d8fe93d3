import warnings

import pytest
import torch

from nvtrader_pipelines.envs.actions import LongShortAction
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.policies.acceleration import (
    COMPILE,
    DEVICE,
    accelerated,
    describe_acceleration,
    training_device,
)
from nvtrader_pipelines.policies.agents import DeepTraderAgent, DifferentiableGrpoAgent, EiieAgent, PathwiseAgent
from nvtrader_pipelines.policies.backbones import MlpBackbone, SharedAssetBackbone
from nvtrader_pipelines.policies.pathwise import training as training_module
from nvtrader_pipelines.policies.pathwise.action_maps import start_map
from nvtrader_pipelines.policies.pathwise.transition import MarketTensors, hold_unchecked
from tests.markets import synthetic_panel
from tests.policies.small_learners import RESIDUAL_SPEC, SPEC, WINDOW

PANEL = synthetic_panel(160, 3)
SMALL = {"total_timesteps": 64, "n_steps": 2}
MLP = MlpBackbone(hidden=(8,))
LONG_SHORT = SPEC.model_copy(update={"action": LongShortAction()})
LEARNERS = {
    "pathwise": (PathwiseAgent(n_envs=8, backbone=MLP, **SMALL), SPEC),
    "residual": (PathwiseAgent(n_envs=8, backbone=SharedAssetBackbone(), **SMALL), RESIDUAL_SPEC),
    "eiie": (EiieAgent(n_envs=8, **SMALL), SPEC),
    "deeptrader": (DeepTraderAgent(n_envs=8, **SMALL), LONG_SHORT),
    "grpo": (DifferentiableGrpoAgent(n_groups=4, group_size=2, backbone=MLP, **SMALL), SPEC),
}


def test_device_is_that_of_the_variable(monkeypatch):
    monkeypatch.delenv(DEVICE, raising=False)
    assert training_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setenv(DEVICE, "cpu")
    assert training_device().type == "cpu"
    monkeypatch.setenv(DEVICE, "gpu")
    with pytest.raises(ValueError, match="auto, cpu or cuda"):
        training_device()


def test_gpu_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv(DEVICE, "cuda")
    with pytest.raises(ValueError, match="finds no GPU"):
        training_device()


def test_compilation_is_described_where_it_is_asked_for(monkeypatch):
    monkeypatch.setenv(DEVICE, "cpu")
    monkeypatch.setenv(COMPILE, "0")
    assert describe_acceleration() == ""
    monkeypatch.setenv(COMPILE, "1")
    assert describe_acceleration() == "compiled"
    monkeypatch.setenv(COMPILE, "yes")
    with pytest.raises(ValueError, match="0 or 1"):
        accelerated(torch.sin)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
def test_function_that_cannot_be_compiled_is_called_itself(monkeypatch):
    monkeypatch.setenv(COMPILE, "1")
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", ("/nonexistent",))
    function, values = accelerated(lambda x: x.sin() + x.cos()), torch.ones(3)
    with pytest.warns(UserWarning, match="cannot compile here: InvalidCxxCompiler"):
        assert torch.equal(function(values), values.sin() + values.cos())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(function(values), values.sin() + values.cos())


@pytest.mark.nightly  # compiles for half a minute
@pytest.mark.filterwarnings("ignore:.*(script_method|The .grad attribute)")  # of PyTorch's compiler itself
def test_compiled_training_is_equal_up_to_rounding(monkeypatch, tmp_path):
    agent, spec = LEARNERS["pathwise"]
    plain = agent.train(PANEL, spec, WINDOW, seed=0)
    monkeypatch.setenv(COMPILE, "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    compiled = agent.train(PANEL, spec, WINDOW, seed=0)
    assert any(tmp_path.rglob("*.so"))
    for name, tensor in plain.tensors.items():
        torch.testing.assert_close(compiled.tensors[name], tensor, rtol=1e-4, atol=1e-6)


def limit_memory(monkeypatch, n_windows):
    """Let a transition of more than `n_windows` run out of memory; return the numbers of windows that were tried."""
    tried = []

    def limited(market, weights, *arguments):
        tried.append(len(weights))
        if len(weights) > n_windows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return hold_unchecked(market, weights, *arguments)

    monkeypatch.setattr(training_module, "hold_unchecked", limited)
    return tried


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pathwise", "residual", "eiie"])
def test_training_in_parts_is_equal_up_to_rounding(name, monkeypatch):
    agent, spec = LEARNERS[name]
    whole = agent.train(PANEL, spec, WINDOW, seed=0)
    tried = limit_memory(monkeypatch, 3)
    parts = agent.train(PANEL, spec, WINDOW, seed=0)
    assert tried[:3] == [8, 4, 2]
    assert set(tried[3:]) == {2}
    assert dict(parts.curve) == pytest.approx(dict(whole.curve))
    for tensor, expected in zip(parts.tensors.values(), whole.tensors.values(), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("deeptrader", 2), ("grpo", 2)])
def test_compared_windows_stay_in_one_part(name, least, monkeypatch):
    agent, spec = LEARNERS[name]
    tried = limit_memory(monkeypatch, least)
    agent.train(PANEL, spec, WINDOW, seed=0)
    assert min(tried) == least
    limit_memory(monkeypatch, 1)
    with pytest.raises(ValueError, match=f"{least} windows of 2 decisions"):
        agent.train(PANEL, spec, WINDOW, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_networks_market_and_maps_stay_on_one_device(name):
    agent, spec = LEARNERS[name]
    simulation = PortfolioSimulation(PANEL, spec, 4, first=WINDOW[0], last=WINDOW[1])
    device = torch.device("meta")  # has no values; PyTorch refuses to mix it with another
    policy_class, arguments = agent.policy(simulation.builder.layout)
    spaces = observation_space(simulation), action_space(simulation)
    policy = policy_class(*spaces, agent.schedule(), **arguments).to(device)
    t = torch.zeros(4, dtype=torch.int64, device=device)
    market, to_weights = MarketTensors.of(PANEL, spec).to(device), start_map(spec.action, PANEL, device)
    weights = to_weights(policy._predict(torch.zeros(4, *spaces[0].shape, device=device), deterministic=True), t)
    held = hold_unchecked(market, weights, weights, t, spec.rebal_freq, 1e-6)
    held.growth.log().sum().backward()
    assert held.weights.device == weights.device == device
    assert sum(parameter.grad is not None for parameter in policy.parameters()) > 1
