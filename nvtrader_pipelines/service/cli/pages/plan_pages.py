"""Pages of rebalance plans: the list, and a single plan."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl

from nvtrader_pipelines.desk.plan_queries import LEVELS
from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.decisions import EDITED
from nvtrader_pipelines.execution.plan import Finding, RebalancePlan, WeightCut
from nvtrader_pipelines.service.cli.family_commands import Answer
from nvtrader_pipelines.service.cli.output import Format, print_line, print_lines, print_part, write_rows

if TYPE_CHECKING:  # imports Iceberg, which the list does not need
    from nvtrader_pipelines.desk.plan_review import MonthlyRecord, PlannedOrder, PlanReview
    from nvtrader_pipelines.service.operations.plans import Plans


def print_plans(rows: pl.DataFrame) -> None:
    """Print plans, those that wait for a person first, then a line per range of halted sessions."""
    plans = rows.filter(pl.col("plan").is_not_null())
    if len(plans):
        write_rows(plans.sort(pl.col("status") != "waiting", maintain_order=True), Format.TABLE, ["reason"])
    for account, first, last, n_sessions, reason in halted_ranges(rows).iter_rows():
        days, count = (f"{first}", "1 session") if n_sessions == 1 else (f"{first} to {last}", f"{n_sessions} sessions")
        print_line(f"{days}: {count} of {account} without a decision, halted: {reason}", "yellow")


def halted_ranges(rows: pl.DataFrame) -> pl.DataFrame:
    """Ranges of sessions of an account halted for one reason without a plan between, newest first."""
    is_halted = pl.col("plan").is_null()
    part = pl.struct("account", is_halted, pl.when(is_halted).then("reason").alias("halt")).rle_id()
    ranges = (
        rows.sort("account", "session")
        .with_columns(part=part)
        .filter(is_halted)
        .group_by("part")
        .agg(
            pl.col("account").first(),
            pl.col("session").min().alias("first"),
            pl.col("session").max().alias("last"),
            pl.len().alias("n_sessions"),
            pl.col("reason").first(),
        )
    )
    return ranges.sort("last", "account", descending=[True, False]).drop("part")


def print_plan(plan: "PlanReview") -> None:
    """Print a plan: facts, findings, orders, record of its policy, stages and weights."""
    lines = {
        "plan": plan.plan_id,
        "edited from plan": f"{plan.parent_id} by {plan.constructed_by}" if plan.parent_id else "",
        "account": plan.account,
        "decided at the close of": str(plan.session),
        "status": plan.status,
        "policy": f"{plan.policy} of run {plan.run_id} ({plan.partition_key})",
        "fold and seeds": f"{plan.fold}; {', '.join(map(str, plan.seeds))}",
        "one-way turnover": f"{plan.turnover:.1%}",
        "cut by a limit": "yes" if plan.truncated else "no",
        "decided by": plan.decided_by or "",
        "reason": plan.reason,
    }
    print_lines(lines, width=24)
    if plan.cuts:
        print_part("edited weights that a limit cut, in % of equity", cut_rows(plan.cuts), "")
    if_empty = "not checked by compliance yet" if plan.cleared_at is None else "no finding"
    print_part("findings", finding_rows(plan.findings), if_empty, ["sentence"])
    print_part("orders: weights in % of equity, money in account currency", order_rows(plan.orders), "all in cash")
    if record := plan.record:
        baseline = record.baseline or "none"
        title = f"record: net returns of the tests in %, to {record.last_session}; baseline: {baseline}"
        print_part(title, record_rows(record), "")
    print_part("stages", stage_rows(plan), "", ["why"])
    print_part("weights", weight_rows(plan), "all in cash")


def cut_rows(cuts: Sequence[WeightCut]) -> pl.DataFrame:
    """Rows of edited weights and of those that the limits left."""
    rows = [(cut.symbol, 100.0 * cut.edited, 100.0 * cut.target, ", ".join(cut.limits)) for cut in cuts]
    schema = {"name": pl.String, "edited": pl.Float64, "target": pl.Float64, "limit": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(pl.col("edited", "target").round(2))


def order_rows(orders: "Sequence[PlannedOrder]") -> pl.DataFrame:
    """Rows of weights before and after, change and order, of names that are held or wanted."""
    rows = [
        (order.symbol, *(100.0 * weight for weight in (order.before, order.after, order.change)), order.amount)
        for order in orders
        if order.before or order.after
    ]
    weights = ("before", "after", "change")
    schema = {"name": pl.String, **dict.fromkeys(weights, pl.Float64), "order": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(pl.col(*weights, "order").round(2))


def record_rows(record: "MonthlyRecord") -> pl.DataFrame:
    """Rows of net returns in percent by month and in total, then the Sharpe ratios and their bounds."""
    returns = [*((month.month, month) for month in record.months), ("total", record)]
    rows = pl.DataFrame(
        [(name, line.policy_return, line.baseline_return) for name, line in returns],
        schema={"month": pl.String, "policy": pl.Float64, "baseline": pl.Float64},
        orient="row",
    )
    ratios = [("Sharpe ratio", record.policy_sharpe, record.baseline_sharpe)]
    if record.policy_sharpe_low is not None or record.baseline_sharpe_low is not None:
        ratios += [("  2.5 % bound", record.policy_sharpe_low, record.baseline_sharpe_low)]
        ratios += [("  97.5 % bound", record.policy_sharpe_high, record.baseline_sharpe_high)]
    percent = rows.with_columns((pl.col("policy", "baseline") * 100.0).round(2))
    return percent.vstack(pl.DataFrame(ratios, schema=rows.schema, orient="row"))


def finding_rows(findings: Sequence[Finding]) -> pl.DataFrame:
    """Rows of findings, blocking ones first."""
    ordered = sorted(findings, key=lambda finding: LEVELS.index(finding.level))
    names = ("rule", "level", "symbol", "figure", "bound", "sentence")
    kinds = (pl.String, pl.String, pl.String, pl.Float64, pl.Float64, pl.String)
    rows = [[getattr(finding, name) for name in names] for finding in ordered]
    return pl.DataFrame(rows, schema=dict(zip(names, kinds, strict=True)), orient="row")


def stage_rows(plan: RebalancePlan) -> pl.DataFrame:
    """Rows of stages: names raised and lowered, sum of absolute changes, and the reason."""
    rows = []
    for before, stage in pairwise((plan.held, *(stage.weights for stage in plan.stages))):
        change = [after - former for after, former in zip(stage[:-1], before[:-1], strict=True)]
        rows.append(
            (
                sum(difference > 0.0 for difference in change),
                sum(difference < 0.0 for difference in change),
                sum(map(abs, change)),
            )
        )
    names = [(stage.name, stage.reason) for stage in plan.stages]
    return pl.DataFrame(
        [(name, *row, reason) for (name, reason), row in zip(names, rows, strict=True)],
        schema={"stage": pl.String, "up": pl.Int64, "down": pl.Int64, "change": pl.Float64, "why": pl.String},
        orient="row",
    )


def weight_rows(plan: RebalancePlan) -> pl.DataFrame:
    """Rows of weights by name in percent of equity: held, then after each stage with a change."""
    changed = [after for before, after in pairwise(plan.stages) if after.weights != before.weights]
    columns = {"held": plan.held, **{stage.name: stage.weights for stage in (plan.stages[0], *changed)}}
    table = pl.DataFrame(
        {"name": plan.symbols, **{name: [100.0 * weight for weight in own] for name, own in columns.items()}}
    )
    numbers = [pl.col(name) for name in columns]
    shown = table.filter(pl.any_horizontal(number != 0.0 for number in numbers))
    return shown.with_columns(number.round(2) for number in numbers)


def print_list(answer: Answer) -> None:
    """Print plans, or that there are none."""
    if answer.document.is_empty():
        print_line("no plan waits for you" if answer.arguments["waiting"] else "no plan yet: nvtrader trade", "dim")
    else:
        print_plans(answer.document)


def print_event(event: AuditEvent, plans: "Plans") -> None:
    """Print a decision, and the plan of edited weights."""
    message = f"plan {event.plan_id} of {event.session} is {event.kind} by {event.by}"
    print_line(f"{message}: {event.reason}" if event.reason else message)
    if EDITED in event.detail:
        print_line("the plan of the edited weights:")
        print_plan(plans.show(event.detail[EDITED]))


PAGES = {"list": print_list, "show": lambda answer: print_plan(answer.document)}
