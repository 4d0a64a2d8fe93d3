import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nvtrader_pipelines.policies.advantages.masked import masked_mean, masked_variance, normalize, whiten
from tests.policies.advantages.golden import assert_close, cases, tensor


@cases("nemo_rl", function="masked_mean")
def test_the_masked_mean_is_nemo_rls(case):
    inputs = {name: value if name == "dim" else tensor(value) for name, value in case["inputs"].items()}
    assert_close(masked_mean(**inputs), case["expected"]["value"])


@cases("nemo_rl", function="masked_var")
def test_the_masked_variance_is_nemo_rls(case):
    values, mask = tensor(case["inputs"]["values"]), tensor(case["inputs"]["mask"])
    assert_close(masked_variance(values, mask, unbiased=True), case["expected"]["unbiased"])
    assert_close(masked_variance(values, mask, unbiased=False), case["expected"]["biased"])


@given(
    values=arrays(float, (5, 7), elements=st.floats(-100.0, 100.0)), mask=arrays(bool, (5, 7)), unbiased=st.booleans()
)
def test_scaled_values_have_mean_0_and_variance_1(values, mask, unbiased):
    values, chosen = torch.tensor(values), torch.tensor(mask)
    seen = values[chosen]
    if len(seen) < 2 or seen.std() < 0.1:
        return
    scaled = (whiten if unbiased else normalize)(values, chosen.double())[chosen]
    torch.testing.assert_close(scaled.mean(), torch.zeros((), dtype=torch.float64), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(
        scaled.var(correction=int(unbiased)), torch.ones((), dtype=torch.float64), rtol=0.0, atol=1e-5
    )


def test_one_step_alone_scales_to_a_finite_number():
    one = torch.ones(1, 1, dtype=torch.float64)
    assert whiten(3.0 * one, one).abs().item() < 1e-3
    assert normalize(3.0 * one, one).abs().item() < 1e-3
