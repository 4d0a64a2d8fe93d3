"""`nvtrader plans`: list and show rebalance plans, and decide on one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from nvtrader_pipelines.components.explanation import KEY, unquoted
from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.options import Reason
from nvtrader_pipelines.service.cli.output import Format, print_line, write_json, write_rows
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations import plans
from nvtrader_pipelines.storage.documents import read_document

app = typer.Typer(name="plans", help="Rebalance plans: targets, compliance findings, and your decisions on them.")
Plan = Annotated[str, typer.Argument(metavar="PLAN", help="Id of a plan, or its beginning.")]
Kind = Annotated[str, typer.Argument(metavar="DECISION", help="approve, override, reject, skip or equal.")]
AccountFilter = Annotated[str | None, typer.Option("--account", help="Account; default: all accounts.")]
Waiting = Annotated[bool, typer.Option("--waiting", help="Only plans that wait for a person.")]
Weights = Annotated[
    list[str] | None, typer.Argument(metavar="[SYMBOL=WEIGHT]...", help="Edited target weights, fractions of equity.")
]
WeightsFile = Annotated[
    Path | None, typer.Option("--weights", metavar="FILE", help="YAML or JSON of edited weights by symbol.")
]
RequiredReason = Annotated[str, typer.Option("--reason", help="Why; recorded in the audit and in the preference data.")]


@command(
    app.callback,
    "nvtrader plans",
    "nvtrader plans --waiting --account paper",
    "nvtrader plans show 3f2a",
    invoke_without_command=True,
)
@command(app.command, "nvtrader plans list", "nvtrader plans list --account paper --json", name="list")
def list_(*, account: AccountFilter = None, waiting: Waiting = False, form: Format) -> None:
    """List all plans, newest first, and sessions that `nvtrader halt` left without one.

    A table begins with the plans that wait for you, and ends with the ranges of halted sessions.
    """
    from nvtrader_pipelines.service.cli.pages.plan_pages import print_plans
    from nvtrader_pipelines.service.documents.plan_facts import ListedPlan

    rows = plans.list_plans(OpenHome.find(), account=account, waiting=waiting)
    if form is not Format.TABLE:
        write_rows(rows, form, model=ListedPlan)
    elif rows.is_empty():
        print_line("no plan waits for you" if waiting else "no plan yet: nvtrader trade", "dim")
    else:
        print_plans(rows)


@command(app.command, "nvtrader plans show 3f2a")
def show(plan: Plan, *, as_json: bool) -> None:
    """Show a plan: findings, orders in money, the record of its policy, and the weights after each stage.

    The record has the last six months of the policy's tests beside the best baseline of its run.
    """
    from nvtrader_pipelines.service.cli.pages.plan_pages import print_plan

    review = plans.show_plan(OpenHome.find(), plan)
    if as_json:
        write_json(review.model_dump(mode="json"))
    else:
        print_plan(review)


@command(
    app.command,
    "nvtrader plans decide 3f2a approve",
    'nvtrader plans decide 3f2a override AAPL=0.1 MSFT=0.05 --reason "too much of one sector"',
    'nvtrader plans decide 3f2a reject --reason "a stale price"',
)
def decide(
    plan: Plan, kind: Kind, weights: Weights = None, *, file: WeightsFile = None, reason: Reason = "", as_json: bool
) -> None:
    """Approve, override, reject or skip a plan, or say that it is as good as the holdings.

    Each kind of decision is a command, too, such as `nvtrader plans override`, whose help says what follows from it.
    """
    _decide(plan, kind, reason, _edits(weights, file), as_json=as_json)


@command(app.command, 'nvtrader plans approve 3f2a --reason "the first buys"')
def approve(plan: Plan, reason: Reason = "", *, as_json: bool) -> None:
    """Approve a waiting plan despite its soft findings; it is traded at its fill session."""
    _decide(plan, "approve", reason, as_json=as_json)


@command(
    app.command,
    'nvtrader plans override 3f2a --reason "earnings tomorrow"',
    'nvtrader plans override 3f2a AAPL=0.1 MSFT=0.05 --reason "too much of one sector"',
    'nvtrader plans override 3f2a --weights mine.yaml --reason "too much of one sector"',
)
def override(
    plan: Plan, weights: Weights = None, *, file: WeightsFile = None, reason: RequiredReason, as_json: bool
) -> None:
    """Override a plan: keep the current holdings, or trade edited weights.

    Names that are left out keep the plan's weights, and cash is the rest. Edited weights pass the limits and compliance
    again and become a plan of their own: cleared, or waiting for your approval of its soft findings.
    """
    _decide(plan, "override", reason, _edits(weights, file), as_json=as_json)


@command(app.command, 'nvtrader plans reject 3f2a --reason "a stale price"')
def reject(plan: Plan, reason: RequiredReason, *, as_json: bool) -> None:
    """Reject a plan: place no order."""
    _decide(plan, "reject", reason, as_json=as_json)


@command(app.command, "nvtrader plans skip 3f2a")
def skip(plan: Plan, reason: Reason = "", *, as_json: bool) -> None:
    """Say that you do not judge a plan: it goes on as before, and your answer counts for nothing."""
    _decide(plan, "skip", reason, as_json=as_json)


@command(app.command, "nvtrader plans equal 3f2a")
def equal(plan: Plan, reason: Reason = "", *, as_json: bool) -> None:
    """Say that a plan is as good as the holdings: it goes on as before."""
    _decide(plan, "equal", reason, as_json=as_json)


def _edits(weights: Sequence[str] | None, file: Path | None) -> dict[str, object]:
    """Edited weights of a command line or a file, as a field of a decision; empty if there are none."""
    if weights and file:
        raise ValueError("edited weights must come from the command line or from a file, but are in both; keep one")
    edits = read_weights(file) if file else parse_weights(weights or [])
    return {"weights": edits} if edits else {}


def parse_weights(texts: Sequence[str]) -> dict[str, float]:
    """Parse weights by symbol from texts such as AAPL=0.1.

    Raises:
        ValueError: if a text is no such pair, or a symbol occurs twice.
    """
    weights = dict[str, float]()
    for text in texts:
        symbol, _, weight = text.partition("=")
        try:
            number = float(weight if weight.isascii() else "")  # other digits are numbers to Python
        except ValueError as error:
            raise ValueError(
                f"an edited weight must be a symbol and a fraction of equity, such as AAPL=0.1, but is {text!r}"
            ) from error
        if symbol in weights:
            raise ValueError(f"a symbol must have one edited weight, but {symbol} has two; keep one")
        weights[symbol] = number
    return weights


def read_weights(path: Path) -> dict[str, float]:
    """Read weights by symbol from a YAML or JSON file.

    Raises:
        StorageError: if the file is no mapping.
        ValueError: if it holds something else than symbols and numbers, or nothing.
    """
    document = read_document(path)
    for symbol, weight in document.items():
        if not isinstance(symbol, str) or isinstance(weight, bool) or not isinstance(weight, int | float):
            raise ValueError(
                f"{path.name} must have lines of a symbol and a fraction of equity, such as `AAPL: 0.1`, but has "
                f"`{symbol}: {weight}`{unquoted(symbol, document.written((KEY,), symbol))}"
            )
    if not document:
        raise ValueError(f"{path.name} must have at least one weight, but has none; without a file, holdings are kept")
    return {symbol: float(weight) for symbol, weight in document.items()}


def _decide(
    plan_text: str, kind: str, reason: str, edits: Mapping[str, object] | None = None, *, as_json: bool
) -> None:
    """Record a person's decision on a plan and print it."""
    from nvtrader_pipelines.execution.decisions import EDITED
    from nvtrader_pipelines.execution.plan_decision import parse_decision
    from nvtrader_pipelines.service.cli.pages.plan_pages import print_plan

    decision = parse_decision({"kind": kind, "reason": reason, **(edits or {})})
    home = OpenHome.find()
    event = plans.decide(home, plan_text, decision)
    if as_json:
        write_json(event.model_dump(mode="json"))
        return
    message = f"plan {event.plan_id} of {event.session} is {event.kind} by {event.by}"
    print_line(f"{message}: {reason}" if reason else message)
    if EDITED in event.detail:
        print_line("the plan of the edited weights:")
        print_plan(plans.show_plan(home, event.detail[EDITED]))
