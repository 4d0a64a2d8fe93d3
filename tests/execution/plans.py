"""Plans of three names, and what becomes of them."""

from datetime import UTC, date, datetime
from functools import partial

from nvtrader_pipelines.execution import decisions
from nvtrader_pipelines.execution.audit import EventDetails, plan_event
from nvtrader_pipelines.execution.compliance import ComplianceData
from nvtrader_pipelines.execution.orders import Fill, Order, order_id
from nvtrader_pipelines.execution.plan import Finding, RebalancePlan, Stage, plan_id
from nvtrader_pipelines.market.calendar import NEW_YORK

SYMBOLS = ("A", "B", "C", "D", "E", "cash")
SESSION = date(2022, 3, 10)
FILLED_ON = date(2022, 3, 11)
AT = datetime(2022, 3, 10, 21, 5, tzinfo=UTC)
HELD = (0.2, 0.2, 0.2, 0.2, 0.2, 0.0)
SECTORS = {"A": "one", "B": "one", "C": "two", "D": "two", "E": "three"}
DATA = ComplianceData(SECTORS)
record_decision = partial(decisions.record_decision, calendar=NEW_YORK)


def a_plan(target=HELD, held=HELD, symbols=SYMBOLS, session=SESSION, account="paper", **fields) -> RebalancePlan:
    own = {
        "plan_id": plan_id(account, session, "a" * 16, "tiny"),
        "policy": "tiny",
        "run_id": "a" * 16,
        "partition_key": "tiny@01234567",
        "spec_hash": "0" * 64,
        "fold": 1,
        "seeds": (0, 1, 5),
        "snapshot_ids": {"gold.returns": 11},
        "stages": (
            Stage(name="policy", weights=held),
            Stage(name="position_cap", weights=target, reason="A cut to 25.0%"),
        ),
        "truncated": True,
    }
    return RebalancePlan(account=account, session=session, symbols=symbols, held=held, **{**own, **fields})


def an_order(plan, symbol="A", side="buy", quantity=10.0) -> Order:
    return Order(
        order_id=order_id(plan.plan_id, symbol),
        plan_id=plan.plan_id,
        account=plan.account,
        symbol=symbol,
        side=side,
        quantity=quantity,
        quote=99.5,
        target_weight=0.25,
        session=FILLED_ON,
    )


def a_fill(order, quantity=None) -> Fill:
    return Fill(
        order_id=order.order_id,
        symbol=order.symbol,
        side=order.side,
        quantity=quantity or order.quantity,
        price=100.0,
        cost=1.25,
        session=order.session,
        complete=quantity is None,
    )


def finding(level) -> Finding:
    rules = {"hard": "max_position_pct", "soft": "turnover_pct_warn", "warn": "min_diversification"}
    return Finding(rule=rules[level], level=level, figure=0.3, bound=0.25, sentence="too much")


def constructed(plan, at=AT):
    return plan_event("constructed", plan, at, "trader", EventDetails(detail={"plan": plan.model_dump(mode="json")}))


def judged(plan, *levels, at=AT):
    findings = [finding(level).model_dump(mode="json") for level in levels]
    kind = "blocked" if "hard" in levels else "cleared"
    return plan_event(kind, plan, at, "compliance", EventDetails(detail={"findings": findings}))


def decided(plan, kind, by="pat", reason="because", at=AT):
    return plan_event(kind, plan, at, by, EventDetails(reason=reason))


def placed(plan, order, at=AT):
    detail = {"order": order.model_dump(mode="json"), "broker_order_id": f"broker-{order.symbol}"}
    return plan_event("placed", plan, at, "paper", _about(order, detail=detail))


def filled(plan, fill, at=AT):
    return plan_event("filled", plan, at, "paper", _about(fill, detail={"fill": fill.model_dump(mode="json")}))


def cancelled(plan, order, reason, at=AT):
    detail = {"order": order.model_dump(mode="json")}
    return plan_event("cancelled", plan, at, "paper", _about(order, reason=reason, detail=detail))


def _about(order, reason="", detail=None):
    return EventDetails(order.order_id, order.symbol, order.session, reason, detail or {})
