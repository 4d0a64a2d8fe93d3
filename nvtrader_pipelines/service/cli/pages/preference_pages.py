"""Pages of preference pairs and of policies tuned to them."""

import polars as pl

from nvtrader_pipelines.service.cli.output import print_line, print_lines, print_part
from nvtrader_pipelines.service.documents.preference_facts import ExportedPairs, ExtractedPairs, TuningFacts


def print_pairs(document: ExtractedPairs) -> None:
    """Print how many pairs there are, and what they can tell."""
    lines = {
        "run": f"{document.run_id} of {document.experiment}",
        "pairs": f"{document.n_pairs:,}: {document.n_trained:,} to train on, {document.n_held_out:,} held out",
        "of people": f"{document.n_of_people:,}",
        "won": f"{document.n_won:,} by the policy, of those with candidates",
        "reported on": f"{document.n_decisions:,} decisions; {document.n_missing:,} are missing to tell an AUC of 0.55 "
        "from 0.50",
    }
    if document.half_width is not None:
        half = f"{document.half_width:.2f}"
        lines["to expect"] = f"an interval of 0.50 \N{PLUS-MINUS SIGN} {half} where pairs teach nothing"
    print_lines(lines)


def print_check(check: TuningFacts) -> None:
    """Print the verdict on a tuned run and what it rests on."""
    lines = {
        "run": f"{check.run_id} of {check.experiment}, tuned from run {check.start}",
        "hold-out AUC": f"{check.auc:.2f} [{check.auc_low:.2f}, {check.auc_high:.2f}], 0.50 is chance",
        "from": f"{check.n_pairs:,} pairs of {check.n_decisions:,} decisions; {check.accuracy:.0%} in the right order",
        "divergence": f"{check.kl:.3f} nats a decision from the start",
    }
    if check.auc_before is not None:
        lines["drift"] = f"{check.auc - check.auc_before:+.2f} since the check before"
    print_lines(lines)
    print_line(check.sentence, None if check.passed else "yellow")
    for note in check.notes:
        print_line(note, "yellow")
    rows = check.frame("calibration")
    print_part("calibration: predicted and observed shares", rows.with_columns(pl.selectors.float().round(3)), "none")
    print_part(
        "rejected winners: decisions of people that the market contradicts, by margin",
        check.frame("rejected_winners"),
        "none: no decision of a person is among the pairs with the market against it",
    )
    print_line(f"picture: {check.picture}", "dim")


def print_export(document: ExportedPairs) -> None:
    """Print the file, and how many pairs are in it."""
    left_out = f"{document.n_left_out:,} of the hold-out left out"
    print_line(f"wrote {document.n_rows:,} pairs to {document.file}; {left_out}")


PAGES = {
    "pairs": lambda answer: print_pairs(answer.document),
    "check": lambda answer: print_check(answer.document),
    "export": lambda answer: print_export(answer.document),
}
