"""The golden numbers of NeMo-RL and Stable-Baselines3 as tensors."""

import numpy as np
import pytest
import torch

from nvtrader_pipelines.policies.advantages import Episodes
from tests.evaluation.golden import golden

CLOSE = {"rtol": 1e-7, "atol": 1e-5}  # a number in single precision, and the references' tolerance


def cases(topic, *, function=None, start=""):
    """A parameter per case of a topic's file, of one function or with ids that start alike."""
    found = [case for case in golden(topic)["cases"] if case["id"].startswith(start)]
    found = [case for case in found if function in (None, case.get("function"))]
    assert found
    return pytest.mark.parametrize("case", found, ids=[case["id"] for case in found])


def tensor(values):
    """Numbers and the words nan and inf, in double precision."""
    return torch.tensor(np.array(values, dtype=np.float64))


def group_numbers(prompts):
    """A whole number per group of equal rows."""
    return torch.tensor(np.unique(np.array(prompts), axis=0, return_inverse=True)[1].reshape(-1))


def outcome_episodes(rewards, mask, groups):
    """Episodes that earn their whole reward at one of their steps."""
    mask, rewards = tensor(mask), tensor(rewards)
    steps = torch.zeros_like(mask)
    steps[torch.arange(len(mask)), mask.argmax(dim=1)] = rewards
    zeros = torch.zeros_like(mask)
    return Episodes(rewards=steps, mask=mask, groups=groups, values=zeros, final_values=zeros[:, 0])


def assert_close(found, expected):
    """Within the references' single precision, and NaN where they have it."""
    torch.testing.assert_close(found, tensor(expected).reshape(found.shape), equal_nan=True, **CLOSE)
