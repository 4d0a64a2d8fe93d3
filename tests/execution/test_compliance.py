"""Every rule at, below and above its bound."""

from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import ValidationError

from nvtrader_pipelines.desk.portfolio_rows import weight_frame
from nvtrader_pipelines.execution.compliance import ComplianceData, compliance_findings, purchase_bans, tightest_limits
from nvtrader_pipelines.execution.invariants import limit_breaches
from nvtrader_pipelines.execution.plan import Finding, is_blocked, needs_approval
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, Situation, Thresholds, WeightPipeline
from nvtrader_pipelines.storage.tables import TARGET_WEIGHTS
from tests.execution.plans import DATA, HELD, SESSION, a_plan
from tests.markets import synthetic_panel

LIMITS = RiskLimits()
PANEL = synthetic_panel(130, 5)
PIPELINE = WeightPipeline().start(PANEL)
OPEN = RiskLimits(max_position=1.0, max_sector=1.0, max_turnover=1.0, min_names=0, max_volatility=9.0)


def found(plan, limits=OPEN, data=DATA, volatility=0.1):
    return [(each.rule, each.level, each.symbol) for each in compliance_findings(plan, limits, data, volatility)]


def only(plan, limits=OPEN, data=DATA, volatility=0.1):
    (finding,) = compliance_findings(plan, limits, data, volatility)
    return finding


def test_a_plan_within_every_bound_has_no_findings():
    assert compliance_findings(a_plan(), LIMITS, DATA, 0.1) == ()


def test_the_defaults_are_those_of_the_source():
    wanted = (0.25, (), 30, 0.20, 0.45, 4, 0.22)
    names = "max_position restricted wash_sale_days max_turnover max_sector min_names max_volatility"
    assert tuple(getattr(LIMITS, name) for name in names.split()) == wanted


@pytest.mark.parametrize(("weight", "n_findings"), [(0.2499, 0), (0.25, 0), (0.25 + 1e-10, 0), (0.2501, 1)])
def test_position_limit_is_inclusive(weight, n_findings):
    target = (weight, 0.2, 0.1, 0.1, 0.1, 0.5 - weight)
    assert (
        found(a_plan(target), OPEN.model_copy(update={"max_position": 0.25}))
        == [("max_position_pct", "hard", "A")] * n_findings
    )


def test_position_finding_has_name_figure_and_bound():
    finding = only(a_plan((0.31, 0.2, 0.2, 0.2, 0.09, 0.0)), OPEN.model_copy(update={"max_position": 0.25}))
    assert (finding.figure, finding.bound) == (0.31, 0.25)
    assert finding.sentence == "A would weigh 31.00%, above the 25.00% that one name may weigh"


@pytest.mark.parametrize("exposure", ["gross", "net"])
@pytest.mark.parametrize(("weight", "n_findings"), [(0.29, 0), (0.3, 0), (0.3 + 1e-10, 0), (0.31, 1)])
def test_gross_and_net_limits_are_inclusive(weight, n_findings, exposure):
    limits = OPEN.model_copy(update={f"max_{exposure}": 0.3})
    plan = a_plan((weight / 2, weight / 2, 0.0, 0.0, 0.0, 1.0 - weight), held=(0.2, 0.2, 0.0, 0.0, 0.0, 0.6))
    assert found(plan, limits) == [("limits_hold", "hard", None)] * n_findings
    assert found(plan, OPEN) == []


def test_net_below_its_minimum_is_a_finding():
    finding = only(a_plan((0.2, 0.0, 0.0, 0.0, 0.0, 0.8)), OPEN.model_copy(update={"min_net": 0.5}))
    assert finding.sentence == "the names would weigh 20.00% net, below the 50.00% that they must"


@given(target=arrays(float, 6, elements=st.floats(0.001, 1.0)), limits=st.deferred(lambda: risk_limits))
def test_findings_agree_with_the_row_invariants(target, limits):
    weights = target / target.sum()
    plan = a_plan(tuple(weights.tolist()))
    rows = weight_frame(TARGET_WEIGHTS, [plan])
    rules = {rule for rule, *_ in found(plan, limits)} & {"limits_hold", "max_position_pct"}
    assert bool(rules) == bool(len(limit_breaches(rows, limits)))


def test_position_limit_ignores_cash():
    assert found(a_plan((0.0, 0.0, 0.0, 0.0, 0.0, 1.0)), OPEN.model_copy(update={"max_position": 0.1})) == []


@given(proposal=arrays(float, 6, elements=st.floats(0.001, 1.0)))
def test_no_plan_of_the_default_pipeline_has_a_name_above_the_bound(proposal):
    held = np.array(HELD)
    situation = Situation(PANEL, 100, held, 0.0, np.zeros(21), Thresholds(), rebal_freq=1)
    target = PIPELINE(proposal / proposal.sum(), situation).weights
    rules = [each.rule for each in compliance_findings(a_plan(tuple(target.tolist())), LIMITS, DATA, 0.1)]
    assert "max_position_pct" not in rules


@pytest.mark.parametrize(("weight", "n_findings"), [(0.3, 1), (0.2, 0), (0.1, 0), (0.0, 0)])
def test_a_restricted_name_may_be_held_or_sold_and_not_bought(weight, n_findings):
    target = (weight, 0.2, 0.2, 0.2, 0.0, 0.4 - weight)
    limits = OPEN.model_copy(update={"restricted": ("A",)})
    assert found(a_plan(target), limits) == [("restricted_list", "hard", "A")] * n_findings


@pytest.mark.parametrize(
    ("held", "target", "rules"),
    [
        (-0.3, -0.1, []),
        (-0.3, 0.0, []),
        (-0.3, 0.1, ["restricted_list", "wash_sale_window_days"]),
        (0.1, -0.3, ["restricted_list"]),  # opens a short position
    ],
)
def test_covering_a_short_position_is_no_purchase(held, target, rules):
    limits = OPEN.model_copy(update={"restricted": ("A",), "max_short": 1.0, "max_gross": 2.0})
    data = ComplianceData(DATA.sectors, [("A", SESSION)])
    plan = a_plan((target, 0.2, 0.2, 0.2, 0.2, 0.2 - target), held=(held, 0.2, 0.2, 0.2, 0.2, 0.2 - held))
    assert found(plan, limits, data) == [(rule, "hard", "A") for rule in rules]


def test_unknown_restricted_name_is_warned_of():
    finding = only(a_plan(), OPEN.model_copy(update={"restricted": ("A", "GEE", "AAPL")}))
    assert (finding.rule, finding.level, finding.figure) == ("restricted_list", "warn", 2)
    assert finding.sentence.startswith("AAPL, GEE restricted")


def test_a_restricted_name_is_stripped_and_must_be_a_symbol():
    assert RiskLimits(restricted=(" AAPL ", "BRK.B", "^GSPC")).restricted == ("AAPL", "BRK.B", "^GSPC")
    for name in (" aapl", "", "  ", "A B", "AAPL,GE"):
        with pytest.raises(ValidationError):
            RiskLimits(restricted=(name,))


@pytest.mark.parametrize(("days", "n_findings"), [(-1, 0), (0, 1), (29, 1), (30, 1), (31, 0)])
def test_a_name_sold_at_a_loss_may_not_be_bought_for_thirty_days(days, n_findings):
    data = ComplianceData(DATA.sectors, [("A", SESSION - timedelta(days=days)), ("B", SESSION)])
    bought = a_plan((0.3, 0.2, 0.2, 0.2, 0.1, 0.0))
    assert found(bought, OPEN, data) == [("wash_sale_window_days", "hard", "A")] * n_findings


@pytest.mark.parametrize(("days", "names"), [(-1, {"A"}), (0, {"A", "B"}), (30, {"A", "B"}), (31, {"A"})])
def test_purchase_bans_cover_restricted_names_and_wash_sales(days, names):
    limits = OPEN.model_copy(update={"restricted": ("A",)})
    data = ComplianceData(DATA.sectors, [("B", SESSION - timedelta(days=days))])
    assert set(purchase_bans(limits, data, SESSION)) == names


@pytest.mark.parametrize(("days", "n_findings"), [(-1, 0), (0, 1), (30, 1), (31, 0)])
def test_unknown_name_sold_at_a_loss_is_warned_of(days, n_findings):
    sales = [("AAPL", SESSION - timedelta(days=days)), ("AAPL", SESSION - timedelta(days=90)), ("A", SESSION)]
    data = ComplianceData(DATA.sectors, sales)
    assert found(a_plan(), OPEN, data) == [("wash_sale_window_days", "warn", None)] * n_findings
    sentences = [each.sentence for each in compliance_findings(a_plan(), OPEN, data, 0.1)]
    assert [sentence.split(",")[0] for sentence in sentences] == ["AAPL sold at a loss"] * n_findings


def test_the_last_sale_at_a_loss_counts():
    sales = [("A", date(2022, 3, 1)), ("A", date(2022, 2, 20)), ("A", date(2022, 3, 20))]
    finding = only(a_plan((0.3, 0.2, 0.2, 0.2, 0.1, 0.0)), OPEN, ComplianceData(DATA.sectors, sales))
    assert (finding.figure, finding.bound) == (9, 30)


@pytest.mark.parametrize("weight", [0.2, 0.0])
def test_a_name_sold_at_a_loss_may_be_held_and_sold(weight):
    data = ComplianceData(DATA.sectors, [("A", SESSION)])
    assert found(a_plan((weight, 0.2, 0.2, 0.2, 0.0, 0.4 - weight)), OPEN, data) == []


@pytest.mark.parametrize(("moved", "n_findings"), [(0.19, 0), (0.2, 0), (0.21, 1)])
def test_turnover_is_one_way_with_cash_and_may_be_its_bound(moved, n_findings):
    plan = a_plan((0.0, 0.2, 0.2, 0.2, 0.0, 0.4), held=(moved, 0.2, 0.2, 0.2, 0.0, 0.4 - moved))
    assert plan.turnover == pytest.approx(moved)
    assert (
        found(plan, OPEN.model_copy(update={"max_turnover": 0.2})) == [("turnover_pct_warn", "soft", None)] * n_findings
    )


@pytest.mark.parametrize(("weight", "n_findings"), [(0.24, 0), (0.25, 0), (0.26, 1)])
def test_a_sector_may_weigh_its_bound_and_no_more(weight, n_findings):
    target = (0.2, weight, 0.1, 0.1, 0.1, 0.5 - weight)
    assert (
        found(a_plan(target), OPEN.model_copy(update={"max_sector": 0.45}))
        == [("sector_concentration_max", "soft", None)] * n_findings
    )


def test_a_sector_above_its_bound_is_named():
    target = (0.3, 0.3, 0.2, 0.1, 0.1, 0.0)
    finding = only(a_plan(target), OPEN.model_copy(update={"max_sector": 0.45}))
    assert finding.sentence == "sector one would weigh 60.00%, above the 45.00% that one may weigh"
    assert finding.figure == pytest.approx(0.6)


def test_a_name_with_weight_and_no_sector_is_a_finding_and_no_pass():
    without = ComplianceData({name: sector for name, sector in DATA.sectors.items() if name != "E"})
    finding = only(a_plan(), LIMITS, without)
    assert (finding.rule, finding.level, finding.symbol) == ("sector_concentration_max", "soft", "E")
    assert finding.figure is None


def test_names_without_a_sector_are_one_finding():
    finding = only(a_plan(), LIMITS, ComplianceData({}))
    assert (finding.rule, finding.symbol, finding.figure) == ("sector_concentration_max", None, None)
    assert finding.sentence.startswith("5 symbols (A, B, C, D, E): no sector is known")


def test_a_name_without_weight_needs_no_sector():
    without = ComplianceData({name: sector for name, sector in DATA.sectors.items() if name != "E"})
    assert found(a_plan((0.2, 0.2, 0.2, 0.2, 0.0, 0.2)), LIMITS, without) == []


@pytest.mark.parametrize(("n_names", "n_findings"), [(5, 0), (4, 0), (3, 1), (0, 1)])
def test_fewer_names_than_the_bound_are_warned_of(n_names, n_findings):
    target = (*(0.2 if i < n_names else 0.0 for i in range(5)), 1.0 - 0.2 * n_names)
    assert (
        found(a_plan(target), OPEN.model_copy(update={"min_names": 4}))
        == [("min_diversification", "warn", None)] * n_findings
    )


@pytest.mark.parametrize(("volatility", "n_findings"), [(0.0, 0), (0.22, 0), (0.2201, 1), (None, 1)])
def test_a_volatility_above_its_bound_or_unknown_is_warned_of(volatility, n_findings):
    findings = compliance_findings(a_plan(), OPEN.model_copy(update={"max_volatility": 0.22}), DATA, volatility)
    assert [(each.rule, each.level, each.figure) for each in findings] == [
        ("realized_vol_target", "warn", volatility)
    ] * n_findings


@pytest.mark.parametrize(
    ("target", "volatility", "blocked", "waiting"),
    [
        (HELD, 0.1, False, False),
        (HELD, 0.9, False, False),
        ((0.2, 0.0, 0.2, 0.2, 0.0, 0.4), 0.1, False, True),
        ((0.3, 0.2, 0.2, 0.2, 0.1, 0.0), 0.1, True, False),
    ],
    ids=["nothing", "warned", "soft", "hard"],
)
def test_hard_findings_block_and_soft_ones_wait(target, volatility, blocked, waiting):
    findings = compliance_findings(a_plan(target), LIMITS, DATA, volatility)
    assert (is_blocked(findings), needs_approval(findings)) == (blocked, waiting)


@pytest.mark.parametrize("volatility", [np.nan, np.inf])
def test_finding_with_a_figure_that_is_not_finite_is_invalid(volatility):
    assert compliance_findings(a_plan(), LIMITS, DATA, volatility) == compliance_findings(a_plan(), LIMITS, DATA, None)
    with pytest.raises(ValidationError):
        Finding(rule="realized_vol_target", level="warn", figure=volatility, bound=0.2, sentence="too much")


def test_wash_sale_window_of_zero_days_is_off():
    data = ComplianceData(DATA.sectors, [("A", SESSION)])
    limits = OPEN.model_copy(update={"wash_sale_days": 0})
    assert found(a_plan((0.3, 0.2, 0.2, 0.2, 0.1, 0.0)), limits, data) == []
    assert purchase_bans(limits, data, SESSION) == {}


def test_the_same_plan_has_the_same_findings():
    plan = a_plan((0.6, 0.3, 0.1, 0.0, 0.0, 0.0))
    data = ComplianceData({}, [("B", SESSION), ("A", SESSION)])
    limits = LIMITS.model_copy(update={"restricted": ("B", "A"), "max_gross": 0.9})
    twice = [compliance_findings(plan, limits, data, None) for _ in range(2)]
    assert twice[0] == twice[1]
    assert len({each.rule for each in twice[0]}) == 8


risk_limits = st.builds(
    RiskLimits,
    max_position=st.floats(0.01, 1.0),
    max_gross=st.floats(0.5, 1.0),
    max_turnover=st.floats(0.01, 1.0),
    max_sector=st.floats(0.01, 1.0),
    max_net=st.floats(0.5, 1.0),
    min_net=st.floats(0.0, 0.5),
    min_names=st.integers(0, 9),
    wash_sale_days=st.integers(0, 60),
    max_volatility=st.floats(0.01, 1.0),
    restricted=st.sets(st.sampled_from("ABC")).map(tuple),
)


@given(a=risk_limits, b=risk_limits, target=st.permutations((0.5, 0.3, 0.2, 0.0, 0.0, 0.0)))
def test_a_plan_passes_the_tighter_limits_only_if_it_passes_both(a, b, target):
    both = {rule for limits in (a, b) for rule, *_ in found(a_plan(tuple(target)), limits)}
    assert {rule for rule, *_ in found(a_plan(tuple(target)), tightest_limits(a, b))} == both


@given(a=risk_limits, b=risk_limits)
def test_the_tighter_limits_do_not_depend_on_the_order(a, b):
    assert tightest_limits(a, b) == tightest_limits(b, a)
    assert tightest_limits(a, a) == a.model_copy(update={"restricted": tuple(sorted(a.restricted))})


def test_every_limit_is_tightened():
    loose = RiskLimits(
        max_position=1, max_short=1, max_gross=1, max_net=1, min_net=0, max_sector=1, max_turnover=1, min_names=0,
        max_volatility=9, wash_sale_days=0, restricted=(),
    )  # fmt: skip
    tight = RiskLimits(
        max_position=0.1, max_short=0.1, max_gross=0.9, max_net=0.9, min_net=0.1, max_sector=0.2, max_turnover=0.1,
        min_names=9, max_volatility=0.1, wash_sale_days=60, restricted=("A",),
    )  # fmt: skip
    assert all(getattr(loose, name) != getattr(tight, name) for name in RiskLimits.model_fields if name != "kind")
    assert tightest_limits(loose, tight) == tight
