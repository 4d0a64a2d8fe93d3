import numpy as np
import pytest

from tests.contracts.families import defaults
from tests.panels import cut, eventful_panel, with_other_future

PANEL = eventful_panel()
ANCHORS = pytest.mark.parametrize("anchor", defaults("anchor"), ids=lambda anchor: anchor.kind)


@ANCHORS
def test_anchor_is_on_the_simplex_of_eligible_names(anchor):
    weights = anchor.weights(PANEL)
    assert weights.shape == (160, 7)
    assert (weights >= 0.0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-12)
    assert not weights[:, :-1][~PANEL.eligible].any()


@ANCHORS
@pytest.mark.parametrize("t", [0, 31, 49, 63, 110])
def test_anchor_does_not_look_ahead(anchor, t):
    known = anchor.weights(PANEL)[: t + 1]
    for other in (with_other_future(PANEL, t), cut(PANEL, t)):
        np.testing.assert_array_equal(anchor.weights(other)[: t + 1], known)
