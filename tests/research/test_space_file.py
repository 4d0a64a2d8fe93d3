import pytest

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.research.knobs import Knob, SearchMode
from nvtrader_pipelines.research.proposal_bounds import Snapped
from nvtrader_pipelines.research.space import base_experiment
from nvtrader_pipelines.research.space_file import read_space
from nvtrader_pipelines.storage.errors import StorageError

BASE = base_experiment(SearchMode.PPO_ONLY)


@pytest.fixture
def read(tmp_path):
    def from_text(text, base=BASE):
        path = tmp_path / "space.yaml"
        path.write_text(text)
        return read_space(path, base, SearchMode.PPO_ONLY)

    return from_text


def test_file_gives_knobs_of_dotted_paths(read):
    rewards = [{"kind": "log_growth"}, {"kind": "turnover_penalty"}]
    base = ExperimentSpec.model_validate({"name": "base", "environment": {"rewards": rewards}})
    space = read(
        "environment.rewards.1.weight: {low: 0.1, high: 5, log: true}\nagent.n_epochs: {low: 2, high: 4}", base
    )
    assert space.knobs == (
        Knob("environment.rewards.1.weight", "environment", "environment.rewards.1.weight", 0.1, 5.0, is_log=True),
        Knob("agent.n_epochs", "agent", "agent.n_epochs", 2.0, 4.0, is_whole=True),
    )
    assert space.base_values == {"environment.rewards.1.weight": 0.1, "agent.n_epochs": 2}
    spec = space.propose({"environment.rewards.1.weight": 2, "agent.n_epochs": 9}).spec
    assert (spec.environment.rewards[1].weight, spec.agent.n_epochs) == (2.0, 4)


def test_batch_is_snapped_where_a_file_varies_the_steps(read):
    found = read("agent.n_steps: {low: 8, high: 64}").propose({"agent.n_steps": 9})
    assert found.snaps == (Snapped(knob="agent.batch_size", proposed=256, used=192),)
    assert (found.spec.agent.n_envs, found.spec.agent.n_steps, found.spec.agent.batch_size) == (64, 9, 192)


@pytest.mark.parametrize(
    "text",
    [
        "environment.vol_penalti: {low: 0, high: 1}",  # no such path
        "environment.rewards.9.weight: {low: 0, high: 1}",
        "environment.fill: {low: 0, high: 1}",  # no number
        "agent.demean_returns: {low: 0, high: 1}",
        "environment: {low: 0, high: 1}",
        "splitter.purge_size: {low: 1, high: 9}",  # of the judgement
        "seeds.0: {low: 0, high: 9}",
        "1: {low: 0, high: 9}",
        "agent.gamma: {low: 0.9, high: 0.8}",
        "agent.gamma: {low: 0.9, high: 0.9}",
        "agent.gamma: {low: .nan, high: 0.9}",
        "agent.gamma: {low: 0.5, high: .inf}",
        "environment.vol_penalty: {low: 0, high: 1, log: true}",
        "agent.gamma: {low: 0.5}",
        "agent.gamma: {low: 0.5, high: 0.9, step: 0.1}",
        "agent.gamma: 0.5",
        "agent.gamma: {low: true, high: 2}",
        "agent.n_epochs: {low: 1.5, high: 4}",  # a whole number
        "agent.gamma: {low: 0.5, high: 1.0}",  # the field is below 1
        "environment.vol_penalty: {low: -1, high: 1}",
        "agent.n_envs: {low: 1, high: 64}",  # a rollout below the least batch
        "{}",
        "- agent.gamma",
    ],
)
def test_file_that_is_no_space_is_refused_in_one_line(read, text):
    with pytest.raises(StorageError) as refusal:
        read(text)
    assert "space.yaml" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_unknown_path_is_refused_with_the_nearest(read):
    with pytest.raises(StorageError, match="vol_penalty"):
        read("environment.vol_penalti: {low: 0, high: 1}")
