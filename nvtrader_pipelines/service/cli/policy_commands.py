"""`nvtrader policies`: list and show trained policies; activate or promote one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.exit_codes import FAILED
from nvtrader_pipelines.service.cli.options import Reason, choose_picture_path
from nvtrader_pipelines.service.cli.output import print_line, write_json
from nvtrader_pipelines.service.open_home import OpenHome, open_store
from nvtrader_pipelines.service.operations import policies

if TYPE_CHECKING:
    from nvtrader_pipelines.service.documents.policy_facts import NewDecision

app = typer.Typer(name="policies", help="Trained policies: their cards, the active one, and the promotion gate.")
Policy = Annotated[
    str,
    typer.Argument(
        metavar="POLICY", help="Experiment (its latest run) or beginning of a run's id; with /seed-K, a single seed."
    ),
]
All = Annotated[
    bool, typer.Option("--all", help="Also single seeds, archived experiments, and versions that must be run again.")
]


@command(
    app.callback,
    "nvtrader policies",
    "nvtrader policies --all --json",
    "nvtrader policies show ppo-residual",
    invoke_without_command=True,
)
@command(app.command, "nvtrader policies list", "nvtrader policies list --all", name="list")
def list_(*, everything: All = False, as_json: bool) -> None:
    """List all trained policies, newest first, the active one marked."""
    from nvtrader_pipelines.service.cli.pages.policy_pages import print_library

    library = policies.list_policies(OpenHome.find(), seeds=everything)
    if as_json:
        write_json(library.model_dump(mode="json"))
    else:
        print_library(library, everything=everything)


@command(app.command, "nvtrader policies show ppo-residual", "nvtrader policies show ppo-residual/seed-0")
def show(policy: Policy, *, as_json: bool) -> None:
    """Show the card of a policy: scores, files, origin, and decisions of the promotion gate."""
    from nvtrader_pipelines.service.cli.pages.policy_pages import print_card

    card = policies.show_policy(OpenHome.find(), policy)
    if as_json:
        write_json(card.model_dump(mode="json"))
    else:
        print_card(card)


@command(
    app.command,
    "nvtrader policies tear-sheet ppo-residual",
    "nvtrader policies tear-sheet ppo-residual/seed-0 -o seed-0.svg",
    name="tear-sheet",
)
def tear_sheet(
    policy: Policy,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Picture to write, .png or .svg; default: in warehouse/pictures."),
    ] = None,
    as_json: bool,
) -> None:
    """Draw a policy's tear sheet: returns by month, rolling figures, worst drawdowns."""
    from nvtrader_pipelines.promotion.policy_cards import find_policy
    from nvtrader_pipelines.runs.run_pictures import draw_tear_sheet, tear_sheet_path
    from nvtrader_pipelines.service.cli.pages.policy_pages import print_tear_sheet
    from nvtrader_pipelines.service.documents.policy_facts import tear_sheet_document

    store = open_store()
    ref = find_policy(store, policy)
    path = choose_picture_path(output, tear_sheet_path(store, ref))
    sheet = draw_tear_sheet(store, ref, path)
    if as_json:
        write_json(tear_sheet_document(ref, sheet, path).model_dump(mode="json"))
    else:
        print_tear_sheet(sheet, path)


@command(
    app.command,
    "nvtrader policies activate ppo-residual",
    'nvtrader policies activate 3f2a --reason "a longer history"',
)
def activate(policy: Policy, reason: Reason = "", *, as_json: bool) -> None:
    """Activate a policy from the next close on; the gate's verdict is only recorded.

    A policy that is already active is checked again, and nothing is recorded.
    """
    home = OpenHome.find()
    _print(home, policies.activate(home, policy, reason), trades=True, as_json=as_json)


@command(app.command, "nvtrader policies promote ppo-residual")
def promote(policy: Policy, *, as_json: bool) -> None:
    """Submit a policy to the promotion gate; if it passes, it is active from the next close on.

    If the gate rejects it, the command exits with 1.
    """
    home = OpenHome.find()
    decision = policies.promote(home, policy)
    _print(home, decision, trades=decision.activated, as_json=as_json)
    if not decision.activated:
        raise typer.Exit(FAILED)


def _print(home: OpenHome, decision: "NewDecision", *, trades: bool, as_json: bool) -> None:
    """Print a decision and, if the policy trades from then on, whether the schedules can trade it."""
    if as_json:
        write_json(decision.model_dump(mode="json"))
        return
    from nvtrader_pipelines.desk.rebalancing import server_message
    from nvtrader_pipelines.service.cli.pages.policy_pages import print_decision

    print_decision(decision)
    if trades:
        print_line(server_message(home.store), "dim")
