"""`nvtrader plans`: list and show rebalance plans, and decide on one."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from nvtrader_pipelines.components.explanation import KEY, unquoted
from nvtrader_pipelines.execution.plan_decision import Approve, Equal, Override, Reject, Skip, parse_decision
from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.cli.options import Reason
from nvtrader_pipelines.service.cli.output import write_json
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.plans import Plans
from nvtrader_pipelines.storage.documents import read_document

Plan = Annotated[str, typer.Argument(metavar="PLAN", help="Id of a plan, or its beginning.")]
Kind = Annotated[str, typer.Argument(metavar="DECISION", help="approve, override, reject, skip or equal.")]
Weights = Annotated[
    list[str] | None, typer.Argument(metavar="[SYMBOL=WEIGHT]...", help="Edited target weights, fractions of equity.")
]
WeightsFile = Annotated[
    Path | None, typer.Option("--weights", metavar="FILE", help="YAML or JSON of edited weights by symbol.")
]
RequiredReason = Annotated[str, typer.Option("--reason", help="Why; recorded in the audit and in the preference data.")]
EXAMPLES = {
    Approve: ('nvtrader plans approve 3f2a --reason "the first buys"',),
    Override: (
        'nvtrader plans override 3f2a --reason "earnings tomorrow"',
        'nvtrader plans override 3f2a AAPL=0.1 MSFT=0.05 --reason "too much of one sector"',
        'nvtrader plans override 3f2a --weights mine.yaml --reason "too much of one sector"',
    ),
    Reject: ('nvtrader plans reject 3f2a --reason "a stale price"',),
    Skip: ("nvtrader plans skip 3f2a",),
    Equal: ("nvtrader plans equal 3f2a",),
}


def decide(
    plan: Plan, kind: Kind, weights: Weights = None, *, file: WeightsFile = None, reason: Reason = "", as_json: bool
) -> None:
    """Decide on a plan by the words of a command line."""
    from nvtrader_pipelines.service.cli.pages.plan_pages import print_event

    if weights and file:
        raise ValueError("edited weights must come from the command line or from a file, but are in both; keep one")
    edits = read_weights(file) if file else parse_weights(weights or [])
    decision = parse_decision({"kind": kind, "reason": reason, **({"weights": edits} if edits else {})})
    plans = Plans(OpenHome.find())
    event = plans.decide(plan, decision)
    if as_json:
        write_json(event.model_dump(mode="json"))
    else:
        print_event(event, plans)


def _decide_by(model: type[Approve | Override | Reject | Skip | Equal]) -> Callable[..., None]:
    """Command of one kind of decision, with the options that it has."""

    def run(*, plan: str, **options: Any) -> None:
        decide(plan, model.model_fields["kind"].default, **options)

    own = inspect.signature(decide).parameters
    names = [name for name in own if name != "kind" and (name not in {"weights", "file"} or model is Override)]
    reason = own["reason"].replace(annotation=RequiredReason, default=inspect.Parameter.empty)
    required = {"reason": reason} if model.model_fields["reason"].is_required() else {}
    parameters = [{**own, **required}[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in names]
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    run.__doc__ = model.__doc__
    return run


app = family_app(Plans, "plan_pages", {"decide": decide})
for decision, lines in EXAMPLES.items():
    command(app.command, *lines, name=decision.model_fields["kind"].default)(_decide_by(decision))


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
