"""Rows of the `portfolio` tables, from audit events and account states."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import polars as pl

from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.orders import Fill, Order
from nvtrader_pipelines.execution.plan import RebalancePlan
from nvtrader_pipelines.execution.plan_records import PlanRecord
from nvtrader_pipelines.storage.audit_log import AuditRow
from nvtrader_pipelines.storage.table import Row, Table

Records = Mapping[str, PlanRecord]
PER_SYMBOL = ["symbol", "weight", "change"]  # lists of a stage, exploded to rows


def plan_rows(records: Iterable[PlanRecord]) -> list[Row]:
    """Rows of plans."""
    return [
        _account_columns(record.plan.account, record.plan.session)
        | _plan_columns(record.plan)
        | {
            "partition_key": record.plan.partition_key,
            "parent_id": record.plan.parent_id,
            "fold": record.plan.fold,
            "seeds": list(record.plan.seeds),
            "symbols": list(record.plan.symbols),
            "held_weights": list(record.plan.held),
            "target_weights": list(record.plan.target),
            "turnover": record.plan.turnover,
            "truncated": record.plan.truncated,
            "status": record.status,
            **{f"n_{level}": _count(record, level) for level in ("hard", "soft", "warn")},
            "findings": json.dumps([finding.model_dump(mode="json") for finding in record.findings]),
            "reason": record.reason,
            "decided_by": record.decided_by,
            "constructed_at": _utc(record.constructed_at),
            "cleared_at": _utc(record.cleared_at),
            "decided_at": _utc(record.decided_at),
        }
        for record in records
    ]


def weight_frame(table: Table, plans: Iterable[RebalancePlan]) -> pl.DataFrame:
    """Frame of target weights: a row per plan, stage and symbol."""
    rows = []
    for plan in plans:
        keys, before = _account_columns(plan.account, plan.session) | _plan_columns(plan), plan.held
        for step, stage in enumerate(plan.stages):
            changes = [now - then for now, then in zip(stage.weights, before, strict=True)]
            lists = {"symbol": list(plan.symbols), "weight": list(stage.weights), "change": changes}
            rows.append(keys | {"step": step, "stage": stage.name, "reason": stage.reason} | lists)
            before = stage.weights
    nested = {name: pl.List(kind) if name in PER_SYMBOL else kind for name, kind in table.schema.items()}
    return pl.DataFrame(rows, schema=nested, orient="row").explode(PER_SYMBOL)


@dataclass
class OrderHistory:
    """Order with its fills and its final status."""

    order: Order
    broker_order_id: str | None = None
    status: str = "placed"
    fills: list[Fill] = field(default_factory=list)
    reason: str = ""
    placed_at: datetime | None = None

    @property
    def filled(self) -> float:
        """Filled shares."""
        return sum((fill.quantity for fill in self.fills), 0.0)


def order_histories(events: Iterable[AuditEvent], records: Records) -> Collection[OrderHistory]:
    """Orders that were placed, or cancelled before, oldest first."""
    histories: dict[str, OrderHistory] = {}
    for event in events:
        if event.order_id is not None and event.plan_id in records:
            _apply_event(histories, event.order_id, event)
    return histories.values()


def order_rows(events: Iterable[AuditEvent], records: Records) -> list[Row]:
    """Rows of orders that were placed, or cancelled before."""
    plan_columns = {plan_id: _plan_columns(record.plan) for plan_id, record in records.items()}
    return [
        _account_columns(history.order.account, history.order.session)
        | plan_columns[history.order.plan_id]
        | {
            **history.order.model_dump(include={"order_id", "symbol", "side", "quantity", "quote", "target_weight"}),
            "broker_order_id": history.broker_order_id,
            "status": history.status,
            "filled_quantity": history.filled,
            "reason": history.reason,
            "placed_at": _utc(history.placed_at),
        }
        for history in order_histories(events, records)
    ]


def _apply_event(histories: dict[str, OrderHistory], order_id: str, event: AuditEvent) -> None:
    if order_id not in histories:
        if "order" not in event.detail:
            return
        histories[order_id] = OrderHistory(Order.model_validate(event.detail["order"]))
    history = histories[order_id]
    if event.kind == "placed":
        history.placed_at, history.broker_order_id = event.at, event.detail.get("broker_order_id")
    elif event.kind == "filled":
        fill = Fill.model_validate(event.detail["fill"])
        history.fills.append(fill)
        history.status = "filled" if fill.complete else "partial"
    elif event.kind == "cancelled":
        history.status, history.reason = "cancelled", event.reason


def fill_rows(events: Iterable[AuditEvent], records: Records) -> list[Row]:
    """Rows of fills."""
    plan_columns = {plan_id: _plan_columns(record.plan) for plan_id, record in records.items()}
    rows = []
    for event in events:
        if event.kind == "filled" and event.plan_id is not None and event.plan_id in records:
            account, fill = records[event.plan_id].plan.account, Fill.model_validate(event.detail["fill"])
            keys = _account_columns(account, fill.session) | plan_columns[event.plan_id]
            rows.append(keys | fill.model_dump() | {"filled_at": _utc(event.at)})
    return rows


def state_rows(account: str, states: Iterable[AccountState]) -> list[Row]:
    """Rows of account states, one per close."""
    return [
        _account_columns(account, state.session)
        | state.model_dump(
            include={"plan_id", "policy", "run_id", "spec_hash", "equity", "net_return", "turnover", "cost"}
            | {"flow", "income", "gross_before_cap", "financing", "cap_turnover", "cap_cost"}
        )
        | {
            "snapshot_ids": _json(state.snapshot_ids),
            "value": state.value,
            "drawdown": state.drawdown,
            "cash": state.weights[-1],
            "symbols": list(state.symbols),
            "weights": list(state.weights),
            "gross": state.gross,
            "n_differences": len(state.differences),
            "differences": list(state.differences),
        }
        for state in states
    ]


def audit_rows(rows: Iterable[AuditRow]) -> list[Row]:
    """Rows of the audit table."""
    return [
        row.event.model_dump(exclude={"at", "snapshot_ids", "detail"})
        | {
            "line": row.line,
            "year": utc_year(row.event.at),
            "at": _utc(row.event.at),
            "snapshot_ids": _json(row.event.snapshot_ids),
            "detail": _json(row.event.detail),
            "chain": row.chain,
        }
        for row in rows
    ]


def utc_year(at: datetime) -> int:
    """Year of a time in UTC."""
    return at.astimezone(UTC).year


def _account_columns(account: str, session: date) -> Row:
    return {"account": account, "year": session.year, "session": session}


def _plan_columns(plan: RebalancePlan) -> Row:
    return {
        "plan_id": plan.plan_id,
        "policy": plan.policy,
        "run_id": plan.run_id,
        "spec_hash": plan.spec_hash,
        "snapshot_ids": _json(plan.snapshot_ids),
    }


def _count(record: PlanRecord, level: str) -> int:
    return sum(finding.level == level for finding in record.findings)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), sort_keys=True, ensure_ascii=False)


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)
