import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control

from nvtrader_pipelines.evaluation.multiple_testing import adjusted_p_values
from tests.evaluation.golden import cases, golden

TOPIC = "multiple_testing"
CORRECTIONS = {"fdr_bh": "benjamini_hochberg", "holm": "holm"}
VECTORS = [(name, way) for name, case in cases(TOPIC).items() for way in case["expected"] if way in CORRECTIONS]
p_values_of = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12).map(np.array)


@pytest.mark.parametrize(("name", "way"), VECTORS)
def test_every_vector_is_reproduced_with_its_rejections(name, way):
    case = cases(TOPIC)[name]
    expected = case["expected"][way]
    found = adjusted_p_values(np.array(case["p"]), CORRECTIONS[way])
    assert found == pytest.approx(expected["adjusted"], abs=1e-12)
    for level in (0.05, 0.1):
        assert (found <= level).tolist() == expected[f"reject_{level:g}"]


def test_benjamini_hochberg_example_rejects_four():
    p_values, printed = np.array(cases(TOPIC)["bh1995_table"]["p"]), golden(TOPIC)["printed"]
    assert (adjusted_p_values(p_values, "benjamini_hochberg") <= 0.05).sum() == printed["bh_rejections"] == 4


@given(p_values=p_values_of)
def test_false_discovery_is_that_of_scipy(p_values):
    found = adjusted_p_values(p_values, "benjamini_hochberg")
    assert found == pytest.approx(false_discovery_control(p_values), abs=1e-12)


@given(p_values=p_values_of)
def test_corrections_only_raise_and_holm_lies_between(p_values):
    false_discovery, holm = (adjusted_p_values(p_values, way) for way in ("benjamini_hochberg", "holm"))
    bonferroni = np.minimum(1.0, len(p_values) * p_values)
    assert (p_values <= false_discovery + 1e-12).all()
    assert (false_discovery <= holm + 1e-12).all()
    assert (holm <= bonferroni + 1e-12).all()


@pytest.mark.parametrize("wrong", [[], [0.5, 1.2], [0.5, np.nan], [[0.1, 0.2]]])
def test_what_are_no_p_values_is_refused(wrong):
    with pytest.raises(ValueError):
        adjusted_p_values(np.array(wrong), "holm")
