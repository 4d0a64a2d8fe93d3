import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.execution.decisions import EDITED, replacement_events
from nvtrader_pipelines.execution.edited_plans import edited_weights, make_edited_plan
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.plan import Finding, weight_cuts
from nvtrader_pipelines.execution.plan_records import PlanRecord, plan_records
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from tests.execution.desks import Deployed, spec_of
from tests.execution.plans import AT, a_plan, constructed, judged, record_decision
from tests.markets import synthetic_panel, with_values

PLAN = a_plan(target=(0.2, 0.3, 0.5), held=(0.4, 0.1, 0.5), symbols=("A", "B", "cash"))
SOFT = Finding(rule="turnover_pct_warn", level="soft", figure=0.5, bound=0.2, sentence="turnover is high")
HARD = SOFT.model_copy(update={"level": "hard"})


@pytest.mark.parametrize(
    ("edits", "weights"),
    [
        ({"A": 0.1}, (0.1, 0.3, 0.6)),
        ({"A": 0.7}, (0.7, 0.3, 0.0)),
        ({"A": 0.25, "B": 0.25, "cash": 0.5}, (0.25, 0.25, 0.5)),
        ({"B": 0.0, "cash": 0.8}, (0.2, 0.0, 0.8)),
        ({"A": 0.333333, "B": 0.666667}, (0.333333, 0.666667, 0.0)),
    ],
)
def test_names_left_out_keep_the_proposed_weight_and_cash_is_the_rest(edits, weights):
    np.testing.assert_allclose(edited_weights(PLAN, edits), weights, atol=1e-12)


@pytest.mark.parametrize(
    ("edits", "named"),
    [
        ({"a": 0.1}, "a is neither"),
        ({"A": -0.1}, "A is -0.1"),
        ({"A": 1.1}, "A is 1.1"),
        ({"A": float("nan")}, "A is nan"),
        ({"A": 0.8}, "sum to 1.1"),
        ({"A": 0.1, "cash": 0.5}, "sum to 0.9"),
        ({"A": 0.2}, "are the same"),
    ],
)
def test_weights_that_are_none_raise_with_the_figure(edits, named):
    with pytest.raises(ExecutionError, match=named):
        edited_weights(PLAN, edits)


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=2))
def test_edited_weights_are_a_portfolio(pair):
    try:
        weights = edited_weights(PLAN, dict(zip("AB", pair, strict=True)))
    except ExecutionError:
        assert sum(pair) > 1.0 or np.allclose(pair, PLAN.target[:-1], atol=2e-6)
        return
    assert weights.min() >= 0.0
    assert abs(weights.sum() - 1.0) < 1e-12


LEVERED = RiskLimits(max_position=1.0, max_short=0.5, max_gross=2.0, max_net=2.0, min_net=-2.0)


@pytest.mark.parametrize(
    ("edits", "weights"),
    [
        ({"A": 1.0, "B": 1.0}, (1.0, 1.0, -1.0)),
        ({"A": -0.5, "B": 0.5}, (-0.5, 0.5, 1.0)),
        ({"A": 0.9, "B": 0.9, "cash": -0.8}, (0.9, 0.9, -0.8)),
        ({"A": -0.5, "B": -0.5, "cash": 2.0}, (-0.5, -0.5, 2.0)),
    ],
)
def test_edited_weights_of_a_levered_account_may_be_short_and_in_debt(edits, weights):
    np.testing.assert_allclose(edited_weights(PLAN, edits, LEVERED), weights, atol=1e-12)


@pytest.mark.parametrize("edits", [{"A": -0.6}, {"cash": -1.1}, {"A": 1.0, "B": 1.0, "cash": -0.9}])
def test_edited_weights_beyond_the_limits_of_a_levered_account_raise(edits):
    with pytest.raises(ExecutionError):
        edited_weights(PLAN, edits, LEVERED)


def test_edited_plan_of_a_levered_policy_sells_short():
    environment = {"action": {"kind": "long_short", "gross": 2.0}}
    deployed = Deployed(synthetic_panel(60, 2), spec_of(environment=environment, pipeline={"risk_limits": LEVERED}))
    first, second = deployed.panel.symbols
    edited = make_edited_plan(deployed, 30, opening_account(2), parent_of(deployed, 30), {first: 0.9, second: -0.5})
    np.testing.assert_allclose(edited.target, (0.9, -0.5, 0.6))
    unlisted = with_values(deployed.panel, "eligible", (30, 1), False)
    with pytest.raises(ExecutionError):
        make_edited_plan(
            Deployed(unlisted, deployed.spec), 30, opening_account(2), parent_of(deployed, 30), {second: -0.5}
        )


LIMITS = [{"kind": "partial_adjustment"}, {"kind": "position_cap", "max_position": 0.2}, {"kind": "gross_exposure"}]


@pytest.fixture
def deployed():
    return Deployed(synthetic_panel(60, 2), spec_of(pipeline={"limits": LIMITS}))


def parent_of(deployed, t):
    symbols = (*deployed.panel.symbols, "cash")
    held = (0.0, 0.0, 1.0)
    return a_plan((0.15, 0.15, 0.7), held, symbols, session=deployed.panel.sessions[t].item())


def test_limits_cut_edited_weights_with_a_reason_and_partial_adjustment_does_not(deployed):
    t, (first, second) = 30, deployed.panel.symbols
    parent = parent_of(deployed, t)
    edited = make_edited_plan(deployed, t, opening_account(2), parent, {first: 0.5, second: 0.1})
    assert [stage.name for stage in edited.stages] == ["person", "position_cap", "gross_exposure"]
    np.testing.assert_allclose(edited.stages[0].weights, (0.5, 0.1, 0.4))
    np.testing.assert_allclose(edited.target, (0.2, 0.1, 0.7))
    assert edited.stages[1].reason == f"{first} cut to 20.0%"
    (cut,) = weight_cuts(edited)
    assert (cut.symbol, cut.edited, cut.target, cut.limits) == (first, 0.5, pytest.approx(0.2), ("position_cap",))
    assert weight_cuts(parent) == ()
    assert edited.truncated
    assert (edited.parent_id, edited.held) == (parent.plan_id, parent.held)
    again = make_edited_plan(deployed, t, opening_account(2), parent, {first: 0.1})
    assert edited.plan_id == again.plan_id != parent.plan_id  # a plan is overridden once


def test_name_without_a_price_may_not_be_bought(deployed):
    t, (first, second) = 30, deployed.panel.symbols
    panel = with_values(deployed.panel, "eligible", (t, 0), False)
    with pytest.raises(ExecutionError):
        make_edited_plan(
            Deployed(panel, deployed.spec), t, opening_account(2), parent_of(deployed, t), {first: 0.2, second: 0.1}
        )


def override(at=AT):
    record = PlanRecord(PLAN, AT, "waiting", (SOFT,))
    return record_decision(record, "overridden", PLAN.session, ("ann", "too much"), at)


def test_override_is_recorded_before_its_own_plan_which_waits_or_is_cleared():
    child = PLAN.model_copy(update={"plan_id": "c" * 16, "parent_id": PLAN.plan_id})
    for findings, status in (((SOFT,), "waiting"), ((), "cleared")):
        events = replacement_events(override(), child, findings)
        assert [(event.kind, event.plan_id, event.by) for event in events] == [
            ("overridden", PLAN.plan_id, "ann"),
            *((kind, child.plan_id, "ann") for kind in ("proposed", "constructed", "cleared")),
        ]
        assert events[0].detail[EDITED] == child.plan_id
        records = plan_records([constructed(PLAN), judged(PLAN, "soft"), *events])
        assert [record.status for record in records.values()] == ["overridden", status]
        assert records[child.plan_id].plan == child


def test_edited_plan_that_compliance_blocks_raises():
    child = PLAN.model_copy(update={"plan_id": "c" * 16, "parent_id": PLAN.plan_id})
    with pytest.raises(ExecutionError):
        replacement_events(override(), child, (SOFT, HARD))


def test_answer_by_a_clock_that_was_set_back_is_no_foresight():
    replayed = PlanRecord(PLAN, AT + dt.timedelta(days=900), "waiting", (SOFT,))
    for decision in ("rejected", "skipped", "equal"):
        event = record_decision(replayed, decision, PLAN.session, ("ann", "why"), AT - dt.timedelta(days=900))
        assert "fill_session_began" in event.detail
