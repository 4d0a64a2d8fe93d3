"""`nvtrader policies`: list and show trained policies; activate or promote one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nvtrader_pipelines.service.cli.exit_codes import FAILED, exit_on_error
from nvtrader_pipelines.service.cli.options import (
    AsJson,
    PageForm,
    Reason,
    Verbose,
    choose_picture_path,
    current_user,
    is_json,
    is_without_command,
    open_store,
    with_examples,
)
from nvtrader_pipelines.service.cli.output import PageFormat, print_line, write_json

if TYPE_CHECKING:
    from nvtrader_pipelines.promotion.policy_cards import LibraryCard

EXAMPLES = with_examples("nvtrader policies", "nvtrader policies --all --json", "nvtrader policies show ppo-residual")
app = typer.Typer(help="Trained policies: their cards, the active one, and the promotion gate.", epilog=EXAMPLES)
Policy = Annotated[
    str,
    typer.Argument(
        metavar="POLICY", help="Experiment (its latest run) or beginning of a run's id; with /seed-K, a single seed."
    ),
]
All = Annotated[
    bool, typer.Option("--all", help="Also single seeds, archived experiments, and versions that must be run again.")
]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def policies(
    context: typer.Context,
    *,
    everything: All = False,
    form: PageForm = PageFormat.TABLE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List all trained policies, newest first, the active one marked; or run a subcommand."""
    if is_without_command(context):
        list_(everything=everything, form=form, as_json=as_json, verbose=verbose)


@app.command("list", epilog=with_examples("nvtrader policies list", "nvtrader policies list --all"))
def list_(
    *,
    everything: All = False,
    form: PageForm = PageFormat.TABLE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List all trained policies, newest first, the active one marked."""
    from nvtrader_pipelines.promotion.policy_cards import read_library
    from nvtrader_pipelines.promotion.rounds import newer_run_message
    from nvtrader_pipelines.service.cli.pages.policy_pages import print_library

    with exit_on_error(verbose=verbose):
        store = open_store()
        library = read_library(store, seeds=everything)
        newer = newer_run_message(store, library.active) if library.active else None
        if is_json(form, as_json=as_json):
            cards = [_document(card) for card in library.cards]
            write_json({"policies": cards, "newer": newer, "problems": library.problems})
        else:
            print_library(library, newer, everything=everything)


@app.command(epilog=with_examples("nvtrader policies show ppo-residual", "nvtrader policies show ppo-residual/seed-0"))
def show(
    policy: Policy,
    *,
    form: PageForm = PageFormat.TABLE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the card of a policy: scores, files, origin, and decisions of the promotion gate."""
    from nvtrader_pipelines.promotion.decision_log import read_promotions_of
    from nvtrader_pipelines.promotion.policy_cards import find_policy, read_library_card
    from nvtrader_pipelines.service.cli.pages.policy_pages import print_card

    with exit_on_error(verbose=verbose):
        store = open_store()
        card = read_library_card(store, find_policy(store, policy))
        promotions = read_promotions_of(store, card.ref)
        if is_json(form, as_json=as_json):
            write_json({**_document(card), "promotions": promotions.to_dicts()})
        else:
            print_card(card, promotions)


@app.command(
    "tear-sheet",
    epilog=with_examples(
        "nvtrader policies tear-sheet ppo-residual", "nvtrader policies tear-sheet ppo-residual/seed-0 -o seed-0.svg"
    ),
)
def tear_sheet(
    policy: Policy,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Picture to write, .png or .svg; default: in warehouse/pictures."),
    ] = None,
    form: PageForm = PageFormat.TABLE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Draw a policy's tear sheet: returns by month, rolling figures, worst drawdowns."""
    from nvtrader_pipelines.promotion.policy_cards import find_policy
    from nvtrader_pipelines.runs.run_pictures import draw_tear_sheet, tear_sheet_path
    from nvtrader_pipelines.service.cli.pages.policy_pages import print_tear_sheet

    with exit_on_error(verbose=verbose):
        store = open_store()
        ref = find_policy(store, policy)
        path = choose_picture_path(output, tear_sheet_path(store, ref))
        sheet = draw_tear_sheet(store, ref, path)
        if is_json(form, as_json=as_json):
            tables = {name: getattr(sheet, name).to_dicts() for name in ("monthly", "yearly", "drawdowns")}
            write_json({**ref._asdict(), "picture": path, **tables})
        else:
            print_tear_sheet(sheet, path)


@app.command(
    epilog=with_examples(
        "nvtrader policies activate ppo-residual", 'nvtrader policies activate 3f2a --reason "a longer history"'
    )
)
def activate(
    policy: Policy,
    reason: Reason = "",
    *,
    form: PageForm = PageFormat.TABLE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Activate a policy from the next close on; the gate's verdict is only recorded.

    A policy that is already active is checked again, and nothing is recorded.
    """
    _decide(policy, reason, through_gate=False, as_json=is_json(form, as_json=as_json), verbose=verbose)


@app.command(epilog=with_examples("nvtrader policies promote ppo-residual"))
def promote(
    policy: Policy,
    *,
    form: PageForm = PageFormat.TABLE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Submit a policy to the promotion gate; if it passes, it is active from the next close on.

    If the gate rejects it, the command exits with 1.
    """
    _decide(policy, "", through_gate=True, as_json=is_json(form, as_json=as_json), verbose=verbose)


def _document(card: "LibraryCard") -> dict[str, Any]:
    """Card for JSON, without annualized figures of short samples."""
    import polars as pl

    from nvtrader_pipelines.service.documents.short_samples import mask_short

    kinds = {"scores": card.scores, "baselines": card.baselines}
    shown = {name: mask_short(pl.DataFrame(rows, infer_schema_length=None)) for name, rows in kinds.items() if rows}
    return card.document() | {name: rows.to_dicts() for name, rows in shown.items()}


def _decide(policy: str, reason: str, *, through_gate: bool, as_json: bool, verbose: bool) -> None:
    """Let the gate or the person decide, and print the decision."""
    from nvtrader_pipelines.desk.rebalancing import server_message
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
        if through_gate and not decision.activated:
            raise typer.Exit(FAILED)
        if not as_json:
            print_line(server_message(store), "dim")
