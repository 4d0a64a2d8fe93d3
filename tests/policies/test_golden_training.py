import json
from pathlib import Path

import numpy as np
import pytest

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.policies.agents import PpoAgent
from tests.markets import synthetic_panel

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "training" / "ppo.json").read_text())


@pytest.mark.parametrize("window", [(100, 700), ((100, 700),)], ids=["a window", "a single stretch"])
def test_default_ppo_training_matches_the_golden_tensors(window):
    fit = PpoAgent(total_timesteps=4096).train(synthetic_panel(800, 3), EnvSpec(), window, 0)
    np.testing.assert_allclose(fit.curve, GOLDEN["curve"], rtol=1e-4)
    np.testing.assert_allclose(fit.scaler.means, GOLDEN["means"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fit.scaler.deviations, GOLDEN["deviations"], rtol=1e-9)
    for name, values in GOLDEN["tensors"].items():
        np.testing.assert_allclose(fit.tensors[name].flatten(), values, rtol=1e-3, atol=1e-5)
    sums = {name: (float(t.double().sum()), float((t.double() ** 2).sum())) for name, t in fit.tensors.items()}
    assert sums.keys() == GOLDEN["sums"].keys()
    for name, found in sums.items():
        np.testing.assert_allclose(found, GOLDEN["sums"][name], rtol=1e-4, atol=1e-3)
