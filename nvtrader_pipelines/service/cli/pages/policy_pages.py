"""Policies as a person reads them on a terminal."""

import polars as pl

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.promotion.decide import activation_command
from nvtrader_pipelines.promotion.findings import describe_period
from nvtrader_pipelines.promotion.library import Library, LibraryCard, Row
from nvtrader_pipelines.promotion.log import PromotionRow
from nvtrader_pipelines.service.cli.pages.run_pages import print_part
from nvtrader_pipelines.service.cli.summary import with_interval
from nvtrader_pipelines.service.cli.tables import Format, wide_console, write_rows

LEGEND = (
    "net Sharpe and the difference in the reported period of the run's own tests; deflated: probability that the "
    "information ratio against the best baseline is more than the luck of so many trials"
)


def print_library(library: Library, newer: str | None, *, everything: bool) -> None:
    """A line per policy, and why some cannot trade; what must be run again is counted only, unless all are asked for.

    Args:
        library: the policies.
        newer: of a newer run than the active one, in words.
        everything: whether every policy is shown.
    """
    shown = [card for card in library.cards if everything or card.active or not card.outdated]
    if shown:
        write_rows(pl.DataFrame([_line(card) for card in shown]), Format.TABLE)
        _say(LEGEND, "dim")
    if not library.cards:
        _say("no trained policy yet: nvtrader materialize", "dim")
    for card in shown:
        _say_state(card)
    if newer:
        _say(newer, "yellow")
    if len(shown) < len(library.cards):
        _say(_not_shown(len(library.cards) - len(shown)), "dim")
    for problem in library.problems:
        _say(problem, "yellow")


def _say_state(card: LibraryCard) -> None:
    """Why a policy cannot trade, and until when the one that trades may."""
    if card.obstacle and card.kind == "ensemble":
        _say(f"cannot trade: {_called(card)}: {card.obstacle}", "yellow")
    if card.active:
        _say(f"{_called(card)} may trade {card.may_trade}")
    if card.active and card.other_code:
        _say(f"note: {_called(card)}: {card.other_code}", "bold yellow")


def _not_shown(n_policies: int) -> str:
    what = "1 policy of a version that means" if n_policies == 1 else f"{n_policies} policies of versions that mean"
    return (
        f"not shown: {what} something else to this code and cannot trade before it is run again; "
        "`nvtrader policies --all` lists every one, with what to do"
    )


def print_card(card: LibraryCard, promotions: pl.DataFrame) -> None:
    """Everything known of a policy, part by part."""
    for name, value in _facts(card).items():
        _say(f"{name:<16} {value}")
    scores = [_score(card.policy, row) for row in card.scores] + [_score(row["policy"], row) for row in card.baselines]
    print_part("scores, net of costs", pl.DataFrame(scores), "no verdict yet: nvtrader materialize")
    folds = [
        {
            "fold": fold["index"],
            "trained on": f"{fold['train_first']} to {fold['train_last']}",
            "tested on": f"{fold['test_first']} to {fold['test_last']}",
            "seed chosen": str(card.chosen.get(fold["index"], "")),
        }
        for fold in card.folds
    ]
    print_part("folds", pl.DataFrame(folds), "")
    files = [{**file, "matches": "yes" if file["matches"] else "no"} for file in card.files]
    print_part("files", pl.DataFrame(files), "")
    said = promotions.select("considered_at", "decision", "passed", "activated", "by", "reason", "sentence")
    print_part("what the gate said", said, "it was not asked yet: nvtrader policies promote")
    for warning in (*card.warnings, *([card.other_code] if card.other_code else [])):
        _say(f"note: {warning}", "yellow")


def print_decision(said: PromotionRow) -> None:
    """What the gate said, and which policy trades now."""
    _say(said.verdict.sentence if said.decision == "gate" else f"the gate says: {said.verdict.sentence}")
    if said.activated:
        _say(
            f"{said.candidate.policy} of run {short_id(said.candidate.run_id)} decides from the next close on",
            "bold",
        )
        if said.warning:
            _say(f"note: {said.warning}", "bold yellow")
    elif said.active is None:
        _say("no policy trades", "dim")
    else:
        _say(f"{said.active.policy} of run {short_id(said.active.run_id)} goes on trading", "dim")
    if said.verdict.differences and not said.activated:
        _say(f"a person may let it trade all the same: {activation_command(said.candidate)}", "dim")


def _line(card: LibraryCard) -> Row:
    score = card.score
    return {
        "": "*" if card.active else "",
        "policy": card.policy,
        "run": short_id(card.run_id),
        "version": card.partition_key,
        "tested": f"{score['first_session']} to {score['last_session']}" if score else "",
        "net Sharpe [95 %]": with_interval(score) if score else "",
        "less best baseline [95 %]": _difference(score) if score else "",
        "deflated": "" if card.deflated_sharpe is None else f"{card.deflated_sharpe:.2f}",
        "state": _state(card),
    }


def _state(card: LibraryCard) -> str:
    state = "cannot trade" if card.obstacle else "trades" if card.active else "can trade"
    return f"{state}, other code" if card.other_code else state


def _called(card: LibraryCard) -> str:
    return f"{card.policy} of run {short_id(card.run_id)}"


def _facts(card: LibraryCard) -> dict[str, str]:
    found = {
        "policy": card.policy,
        "state": "trades" if card.active else "does not trade",
        "may trade": card.may_trade or "",
        "can trade": card.obstacle or "yes, on the market as it is now",
        "version": card.partition_key,
        "spec hash": card.spec_hash,
        "made from": card.made_from or "",
        "run": card.run_id,
        "code": card.code_version,
        "seeds": ", ".join(map(str, card.seeds)),
        "market": f"{card.source}, panel {card.panel_digest}",
        "snapshots": ", ".join(f"{table} {snapshot}" for table, snapshot in sorted(card.snapshot_ids.items())),
        "policies": card.policies_sha256,
        "deflated": _deflated(card),
    }
    return {name: value for name, value in found.items() if value}


def _deflated(card: LibraryCard) -> str:
    if card.deflated_sharpe is None:
        return ""
    return f"{card.deflated_sharpe:.2f}, information ratio against the best baseline, {describe_period(card.period)}"


def _score(name: str, row: Row) -> Row:
    return {
        "account": name,
        "period": row["period"],
        "sessions": f"{row['first_session']} to {row['last_session']}",
        "net Sharpe [95 %]": with_interval(row),
        "less best baseline [95 %]": _difference(row),
        "CAGR": f"{row['cagr']:.1%}",
        "max DD": f"{row['max_drawdown']:.0%}",
        "turnover/y": f"{row['turnover_per_year']:.1f}",
    }


def _difference(row: Row) -> str:
    value = row.get("sharpe_difference")
    if value is None:
        return ""
    return f"{value:+.2f} [{row['difference_low']:+.2f}, {row['difference_high']:+.2f}] {row['best_baseline']}"


def _say(text: str, style: str | None = None) -> None:
    wide_console().print(text, style=style, markup=False, highlight=False, soft_wrap=True)
