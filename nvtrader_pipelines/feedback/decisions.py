"""Decisions of people as rows: from the audit to their file, and from the file to the tables."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.decisions import EDITED
from nvtrader_pipelines.execution.plan import RebalancePlan
from nvtrader_pipelines.execution.trader import ACKNOWLEDGED
from nvtrader_pipelines.preferences.decision_lines import RefusedLine, compare_lines
from nvtrader_pipelines.preferences.decisions import MIN_CHANGE, DecisionKind, DecisionRow, ProposedOrder
from nvtrader_pipelines.storage.audit_log import AuditRow
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import Row, to_frame
from nvtrader_pipelines.storage.tables import DECISIONS, REFUSED_DECISIONS

KINDS = frozenset({"approved", "overridden", "rejected", "skipped", "equal"})
_PLAN_ID = re.compile(rb'"plan_id":"([0-9a-f]{16})"')
_ORDERS = TypeAdapter(tuple[ProposedOrder, ...])
_BY_REPLAY = f'"reason":"{ACKNOWLEDGED}"'.encode()


def act_on_account(store: Store, account: str, by: str, action: Callable[[Desk], AuditEvent]) -> AuditEvent:
    """Let a person act on an account, and mirror what follows from it."""
    desk = Desk(store, account, by=by)
    event = action(desk)
    write_decisions(store)
    desk.mirror()
    return event


def write_decisions(store: Store) -> int:
    """Append the audit's decisions that the file lacks, also those before a reset; return their number.

    The audit is the store of record: what a killed process did not write is written by the next.

    Raises:
        StorageError: if the audit is damaged, or the file cannot be written.
    """
    return store.decisions.append_missing(lambda written: _missing_rows(store.audit.rows(), written))


def extract_decisions(store: Store) -> tuple[Sequence[DecisionRow], Sequence[RefusedLine]]:
    """Replace the tables by the audit's decisions and the file's refused lines.

    A decision that the file lacks, or whose line is damaged or differs from the audit, is written again.
    """
    rows = audited_decisions(store)

    def rows_without_line(_: set[str]) -> list[DecisionRow]:
        intact = compare_lines(store.decisions.read_lines(), rows)[0]
        return [row for row in rows if row.decision_id not in intact]

    store.decisions.append_missing(rows_without_line)
    _, refused = compare_lines(store.decisions.read_lines(), rows)
    store.tables.replace(DECISIONS, to_frame(DECISIONS, [_table_row(row) for row in rows]), {})
    store.tables.replace(REFUSED_DECISIONS, to_frame(REFUSED_DECISIONS, [vars(line) for line in refused]), {})
    return rows, refused


def find_refused_lines(store: Store) -> list[RefusedLine]:
    """Find the lines of the file that are damaged or differ from the audit; write nothing.

    Raises:
        StorageError: if the audit is damaged, or the file cannot be read.
    """
    return compare_lines(store.decisions.read_lines(), audited_decisions(store))[1]


def audited_decisions(store: Store) -> list[DecisionRow]:
    """Make the rows of all decisions in the audit, also those before a reset, in the sequence they were made.

    Raises:
        StorageError: if the audit is damaged.
    """
    return _missing_rows(store.audit.rows(), set())


@dataclass
class _DecidedPlan:
    """Decision in the audit, with the events that made its plans."""

    event: AuditEvent
    proposed: AuditRow
    edited: AuditRow | None = None

    def row(self) -> DecisionRow:
        return decision_row(self.event, _plan(self.proposed), self.edited and _plan(self.edited))


def _missing_rows(rows: Sequence[AuditRow], written: set[str]) -> list[DecisionRow]:
    """Make the rows of people's decisions that are not written; of other events, only the plan's id is read."""
    plans: dict[bytes, AuditRow] = {}
    missing: list[_DecidedPlan] = []
    edits: dict[bytes, _DecidedPlan] = {}
    for row in rows:
        if row.kind not in KINDS and row.kind != "constructed":
            continue
        named = _PLAN_ID.search(row.body)
        plan_id = named[1] if named else b""
        if row.kind == "constructed":
            plans[plan_id] = row
            if plan_id in edits:
                edits.pop(plan_id).edited = row
        elif row.event_id not in written and _BY_REPLAY not in row.body:
            missing.append(_DecidedPlan(row.event, plans[plan_id]))
            if child := row.event.detail.get(EDITED):
                edits[child.encode()] = missing[-1]
    return [decision.row() for decision in missing]


def _plan(constructed: AuditRow) -> RebalancePlan:
    return RebalancePlan.model_validate(constructed.event.detail["plan"])


def decision_row(event: AuditEvent, plan: RebalancePlan, edited: RebalancePlan | None = None) -> DecisionRow:
    """Make the row of a decision on a plan; `edited` is the plan of the person's own weights."""
    chosen: Mapping[str, tuple[float, ...] | None] = {
        "approved": plan.target,
        "edited": edited and edited.target,
        "overridden": plan.held,
        "rejected": plan.held,
    }
    decision: DecisionKind = "edited" if edited else event.kind  # type: ignore[assignment] - one of KINDS
    final = edited or plan
    return DecisionRow(
        decision_id=event.event_id,
        plan_id=final.plan_id,
        parent_id=final.parent_id,
        account=plan.account,
        session=plan.session,
        by=event.by,
        at=event.at,
        decision=decision,
        reason=event.reason,
        symbols=plan.symbols,
        held_weights=plan.held,
        proposed_weights=plan.target,
        chosen_weights=chosen.get(decision),
        orders=_orders(plan, event.detail.get("account_value", 0.0)),
        policy=plan.policy,
        run_id=plan.run_id,
        partition_key=plan.partition_key,
        observation_hash=plan.observation_hash,
        snapshot_ids=plan.snapshot_ids,
        outcome_known="fill_session_began" in event.detail,
    )


def _orders(plan: RebalancePlan, value: float) -> tuple[ProposedOrder, ...]:
    """Changes that a plan proposes, in the order of its symbols, for an account of this value."""
    changes = [
        (symbol, after - before)
        for symbol, before, after in zip(plan.symbols[:-1], plan.held, plan.target, strict=False)
        if abs(after - before) > MIN_CHANGE
    ]
    orders = [
        {"symbol": symbol, "side": "buy" if change > 0.0 else "sell", "change": change, "amount": change * value}
        for symbol, change in changes
    ]
    return _ORDERS.validate_python(orders)  # in one call: single ones take half of all time


def _table_row(row: DecisionRow) -> Row:
    orders = [[getattr(order, name) for order in row.orders] for name in ("symbol", "change", "amount")]
    return row.model_dump(exclude={"orders", "snapshot_ids"}) | {
        "order_symbols": orders[0],
        "order_changes": orders[1],
        "order_amounts": orders[2],
        "snapshot_ids": json.dumps(dict(row.snapshot_ids), sort_keys=True),
    }
