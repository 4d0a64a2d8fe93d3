"""`nvtrader policies`: what was trained, what of it trades, and who may take its place."""

import json
import sys
from typing import Annotated, Any

import typer

from nvtrader_pipelines.service.cli.errors import one_sentence
from nvtrader_pipelines.service.cli.options import (
    EPILOG,
    AsJson,
    Verbose,
    open_store,
    person,
    refuse_options_before_command,
)

app = typer.Typer(help="Trained policies: their cards, the one that trades, and the promotion gate.", epilog=EPILOG)
Policy = Annotated[
    str,
    typer.Argument(
        metavar="POLICY", help="An experiment (its latest run) or the beginning of a run's id; with /seed-K one seed."
    ),
]
All = Annotated[bool, typer.Option("--all", help="Single seeds too, and policies of versions that must be run again.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the audit.")]


@app.callback(invoke_without_command=True, epilog=EPILOG)
def policies(
    context: typer.Context, *, everything: All = False, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """List every trained policy, the latest first, and mark the one that trades; or do something with one."""
    refuse_options_before_command(context)
    if context.invoked_subcommand is None:
        list_(everything=everything, as_json=as_json, verbose=verbose)


@app.command("list", epilog=EPILOG)
def list_(*, everything: All = False, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """List every trained policy, the latest first, and mark the one that trades."""
    from nvtrader_pipelines.promotion.library import read_library
    from nvtrader_pipelines.promotion.rounds import newer_run_message
    from nvtrader_pipelines.service.cli.pages.policy_pages import print_library

    with one_sentence(verbose=verbose):
        store = open_store()
        library = read_library(store, seeds=everything)
        newer = newer_run_message(store, library.active) if library.active else None
        if as_json:
            cards = [card.document() for card in library.cards]
            _write({"policies": cards, "newer": newer, "problems": library.problems})
        else:
            print_library(library, newer, everything=everything)


@app.command(epilog=EPILOG)
def show(policy: Policy, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show the card of one policy: its scores, its files, where it comes from, and what the gate said of it."""
    from nvtrader_pipelines.promotion.library import find_policy, read_library_card
    from nvtrader_pipelines.promotion.log import read_promotions_of
    from nvtrader_pipelines.service.cli.pages.policy_pages import print_card

    with one_sentence(verbose=verbose):
        store = open_store()
        card = read_library_card(store, find_policy(store, policy))
        said = read_promotions_of(store, card.ref)
        if as_json:
            _write({**card.document(), "promotions": said.to_dicts()})
        else:
            print_card(card, said)


@app.command(epilog=EPILOG)
def activate(policy: Policy, reason: Reason = "", *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Make a policy the one that decides from the next close on, whatever the gate says; what it says is kept."""
    _put_forward(policy, reason, asks_gate=False, as_json=as_json, verbose=verbose)


@app.command(epilog=EPILOG)
def promote(policy: Policy, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Ask the promotion gate; where it says yes, the policy decides from the next close on."""
    _put_forward(policy, "", asks_gate=True, as_json=as_json, verbose=verbose)


def _put_forward(policy: str, reason: str, *, asks_gate: bool, as_json: bool, verbose: bool) -> None:
    """Let the gate or the person decide, and tell what came of it."""
    from nvtrader_pipelines.promotion.decide import activate_manually, evaluate_candidate
    from nvtrader_pipelines.runs.lifecycle import now
    from nvtrader_pipelines.service.cli.pages.policy_pages import print_decision
    from nvtrader_pipelines.storage.views import publish

    with one_sentence(verbose=verbose):
        store = open_store()
        by = person()
        said = (
            evaluate_candidate(store, policy, by, now)
            if asks_gate
            else activate_manually(store, policy, by, reason, now)
        )
        publish(store)
        if as_json:
            _write(said.row())
        else:
            print_decision(said)


def _write(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, indent=1, default=str) + "\n")
