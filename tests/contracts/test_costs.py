import numpy as np
import pytest

from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.envs.spec import EnvSpec
from tests.contracts.families import defaults, simplex
from tests.panels import cut, eventful_panel, with_other_future

PANEL = eventful_panel()
COSTS = pytest.mark.parametrize("model", defaults("cost_model"), ids=lambda model: model.kind)


@COSTS
@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
def test_cost_of_an_account_does_not_look_ahead(model, fill):
    spec = EnvSpec(turnover_cost_bps=0.0, costs=(model,), fill=fill)

    def paid(panel):
        accounts, generator = Accounts(panel, spec, 3, t=40), np.random.default_rng(3)
        steps = [accounts.trade(simplex(generator, 3, 6), np.ones(3, dtype=bool), 4) for _ in range(5)]
        return np.array([step.transition.cost for step in steps]), accounts.equity

    cost, equity = paid(PANEL)
    assert (cost > 0.0).all()
    for other in (with_other_future(PANEL, 60), cut(PANEL, 60)):
        for found, expected in zip(paid(other), (cost, equity), strict=True):
            np.testing.assert_array_equal(found, expected)
