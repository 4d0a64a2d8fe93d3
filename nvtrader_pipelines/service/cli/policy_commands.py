"""`nvtrader policies`: list and show trained policies; activate or promote one."""

from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.exit_codes import exit_on_error
from nvtrader_pipelines.service.cli.options import (
    EPILOG,
    AsJson,
    Reason,
    Verbose,
    current_user,
    is_without_command,
    open_store,
)
from nvtrader_pipelines.service.cli.output import write_json

app = typer.Typer(help="Trained policies: their cards, the active one, and the promotion gate.", epilog=EPILOG)
Policy = Annotated[
    str,
    typer.Argument(
        metavar="POLICY", help="Experiment (its latest run) or beginning of a run's id; with /seed-K, a single seed."
    ),
]
All = Annotated[
    bool, typer.Option("--all", help="Also single seeds, archived experiments, and versions that must be run again.")
]


@app.callback(invoke_without_command=True, epilog=EPILOG)
def policies(
    context: typer.Context, *, everything: All = False, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """List all trained policies, newest first, the active one marked; or run a subcommand."""
    if is_without_command(context):
        list_(everything=everything, as_json=as_json, verbose=verbose)


@app.command("list", epilog=EPILOG)
def list_(*, everything: All = False, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """List all trained policies, newest first, the active one marked."""
    from nvtrader_pipelines.promotion.policy_cards import read_library
    from nvtrader_pipelines.promotion.rounds import newer_run_message
    from nvtrader_pipelines.service.cli.pages.policy_pages import print_library

    with exit_on_error(verbose=verbose):
        store = open_store()
        library = read_library(store, seeds=everything)
        newer = newer_run_message(store, library.active) if library.active else None
        if as_json:
            cards = [card.document() for card in library.cards]
            write_json({"policies": cards, "newer": newer, "problems": library.problems})
        else:
            print_library(library, newer, everything=everything)


@app.command(epilog=EPILOG)
def show(policy: Policy, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show the card of a policy: scores, files, origin, and decisions of the promotion gate."""
    from nvtrader_pipelines.promotion.decision_log import read_promotions_of
    from nvtrader_pipelines.promotion.policy_cards import find_policy, read_library_card
    from nvtrader_pipelines.service.cli.pages.policy_pages import print_card

    with exit_on_error(verbose=verbose):
        store = open_store()
        card = read_library_card(store, find_policy(store, policy))
        promotions = read_promotions_of(store, card.ref)
        if as_json:
            write_json({**card.document(), "promotions": promotions.to_dicts()})
        else:
            print_card(card, promotions)


@app.command(epilog=EPILOG)
def activate(policy: Policy, reason: Reason = "", *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Activate a policy from the next close on; the gate's verdict is only recorded."""
    _decide(policy, reason, through_gate=False, as_json=as_json, verbose=verbose)


@app.command(epilog=EPILOG)
def promote(policy: Policy, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Submit a policy to the promotion gate; if it passes, it is active from the next close on."""
    _decide(policy, "", through_gate=True, as_json=as_json, verbose=verbose)


def _decide(policy: str, reason: str, *, through_gate: bool, as_json: bool, verbose: bool) -> None:
    """Let the gate or the person decide, and print the decision."""
    from nvtrader_pipelines.promotion.promote import activate_manually, evaluate_candidate
    from nvtrader_pipelines.runs.lifecycle import now
    from nvtrader_pipelines.service.cli.pages.policy_pages import print_decision
    from nvtrader_pipelines.storage.views.publishing import publish

    with exit_on_error(verbose=verbose):
        store = open_store()
        by = current_user()
        decision = (
            evaluate_candidate(store, policy, by, now)
            if through_gate
            else activate_manually(store, policy, by, reason, now)
        )
        publish(store)
        if as_json:
            write_json(decision.row())
        else:
            print_decision(decision)
