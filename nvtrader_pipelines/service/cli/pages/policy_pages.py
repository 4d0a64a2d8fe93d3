"""Pages of policies: the list, a card, and a promotion decision."""

import polars as pl

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.findings import describe_period
from nvtrader_pipelines.evaluation.formats import annual_cell, difference_cells, sharpe_cells
from nvtrader_pipelines.evaluation.short_samples import short_note
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.promotion.policy_cards import LibraryCard, Row
from nvtrader_pipelines.promotion.promote import activation_command
from nvtrader_pipelines.service.cli.family_commands import Answer
from nvtrader_pipelines.service.cli.output import Format, print_line, print_part, write_rows
from nvtrader_pipelines.service.documents.policy_facts import NewDecision, PolicyDocument, PolicyList, TearSheetDocument

LEGEND = (
    "net Sharpe and difference: in the reported period of the run's tests; deflated: probability that the information "
    "ratio against the best baseline exceeds what the best of all trials reaches by luck"
)


def print_library(library: PolicyList, *, everything: bool) -> None:
    """Print a line per policy, the obstacles of those that cannot trade, and the message on a newer run.

    Unless `everything` is to be listed, policies of outdated versions are only counted.
    """
    shown = [card for card in library.policies if everything or card.active or not card.outdated]
    if shown:
        write_rows(pl.DataFrame([_library_row(card) for card in shown]), Format.TABLE)
        print_line(LEGEND, "dim")
    if note := short_note(card.score["n_sessions"] for card in shown if card.score):
        print_line(note, "dim")
    if not library.policies:
        print_line("no trained policy yet: nvtrader materialize", "dim")
    for card in shown:
        _print_state(card)
    if library.newer:
        print_line(library.newer, "yellow")
    if len(shown) < len(library.policies):
        print_line(_outdated_note(len(library.policies) - len(shown)), "dim")
    for problem in library.problems:
        print_line(problem, "yellow")


def _print_state(card: LibraryCard) -> None:
    """Print why a policy cannot trade, or until when the active one may."""
    if card.obstacle and card.kind == "ensemble":
        print_line(f"cannot trade: {_label(card)}: {card.obstacle}", "yellow")
    if card.active:
        print_line(f"{_label(card)} may trade {card.may_trade}")
    if card.active and card.other_code:
        print_line(f"note: {_label(card)}: {card.other_code}", "bold yellow")


def _outdated_note(n_policies: int) -> str:
    count = "1 policy of a version" if n_policies == 1 else f"{n_policies} policies of versions"
    return (
        f"not shown: {count} from other code, which must be run again before trading; "
        "`nvtrader policies --all` lists all, with what to do"
    )


def print_card(card: PolicyDocument) -> None:
    """Print the card of a policy: facts, scores, folds, files, gate decisions and warnings."""
    for name, value in _facts(card).items():
        print_line(f"{name:<16} {value}")
    scores = [_score_row(card.policy, row) for row in card.scores]
    scores += [_score_row(row["policy"], row) for row in card.baselines]
    print_part("scores, net of costs", pl.DataFrame(scores), "no verdict yet: nvtrader materialize")
    if note := short_note(row["n_sessions"] for row in card.scores):
        print_line(note, "dim")
    folds = [
        {
            "fold": fold["index"],
            "trained on": f"{fold['train_first']} to {fold['train_last']}",
            "tested on": f"{fold['test_first']} to {fold['test_last']}",
            "weights of seeds" if card.weights else "seed chosen": _seeds_of(card, fold["index"]),
        }
        for fold in card.folds
    ]
    print_part("folds", pl.DataFrame(folds), "")
    files = [
        {"file": file["file"], "matches": "yes" if file["matches"] else "no", "sha256": file["sha256"]}
        for file in card.files
    ]
    print_part("files", pl.DataFrame(files), "")
    columns = "considered_at", "decision", "sentence", "passed", "activated", "by", "reason"
    decisions = pl.DataFrame([{name: getattr(row, name) for name in columns} for row in card.promotions])
    print_part("promotion gate", decisions, "no decision yet: nvtrader policies promote", ["sentence", "reason"])
    for warning in (*card.warnings, *([card.other_code] if card.other_code else [])):
        print_line(f"note: {warning}", "yellow")


def _seeds_of(card: PolicyDocument, fold: int) -> str:
    """Format the seed of a fold, or those with the three largest weights; empty where all weigh the same."""
    if fold in card.chosen:
        return f"{card.chosen[fold]} ({card.agents[card.chosen[fold]]})"
    weights = card.weights.get(fold, {})
    largest = sorted(weights, key=weights.__getitem__, reverse=True)[:3]
    shown = [f"{weights[seed]:.2f} seed {seed} ({card.agents[seed]})" for seed in largest]
    return ", ".join(shown + ["..."] * (len(weights) > len(largest)))


def print_tear_sheet(sheet: TearSheetDocument) -> None:
    """Print yearly returns, the worst drawdowns and the path of the picture."""
    yearly = sheet.frame("yearly").select("year", pl.col("return").map_elements("{:+.1%}".format, pl.String))
    print_part("returns by year, net of costs", yearly, "")
    drawdowns = sheet.frame("drawdowns")
    if len(drawdowns):
        drawdowns = drawdowns.with_columns(
            pl.col("depth").map_elements("{:.1%}".format, pl.String),
            pl.col("recovery").cast(pl.String).fill_null("not yet"),
        ).rename({"n_sessions": "sessions"})
    print_part("worst drawdowns", drawdowns, "none")
    print_line(f"picture  {sheet.picture}")


def print_new_decision(answer: Answer) -> None:
    """Print a decision and, if the policy trades from then on, whether the schedules can trade it."""
    from nvtrader_pipelines.desk.rebalancing import server_message  # imports plans of experiments

    decision = answer.document
    print_decision(decision)
    if decision.activated or decision.decision != "gate":
        print_line(server_message(answer.home.store), "dim")


def print_decision(row: NewDecision) -> None:
    """Print the gate's verdict and which policy trades now."""
    print_line(row.sentence if row.decision == "gate" else f"gate: {row.sentence}")
    candidate = PolicyRef(row.run_id, row.policy)
    active = PolicyRef(row.active_run_id, row.active_policy) if row.active_run_id else None
    if row.activated:
        replaced = f", in place of {active.label}" if active and active != candidate else ""
        print_line(f"{candidate.label} decides from the next close on{replaced}", "bold")
        if row.warning:
            print_line(f"note: {row.warning}", "bold yellow")
    elif active is None:
        print_line("no policy trades", "dim")
    else:
        print_line(f"{active.policy} of run {short_id(active.run_id)} keeps trading", "dim")
    if row.sharpe is not None and not row.activated:
        print_line(f"to activate it all the same: {activation_command(candidate)}", "dim")


def _library_row(card: LibraryCard) -> Row:
    score = card.score
    sharpe, *others = _sharpe_columns(score).items()
    return {
        "": "*" if card.active else "",
        "policy": card.policy,
        "run": short_id(card.run_id),
        **dict([sharpe, ("state", _state(card)), *others]),
        "deflated": "" if card.deflated_sharpe is None else f"{card.deflated_sharpe:.2f}",
        "tested": f"{score['first_session']} to {score['last_session']}" if score else "",
        "version": card.partition_key,
    }


def _state(card: LibraryCard) -> str:
    state = "cannot trade" if card.obstacle else "trades" if card.active else "can trade"
    return f"{state}, other code" if card.other_code else state


def _label(card: LibraryCard) -> str:
    return f"{card.policy} of run {short_id(card.run_id)}"


def _facts(card: LibraryCard) -> dict[str, str]:
    facts = {
        "policy": card.policy,
        "state": "trades" if card.active else "does not trade",
        "may trade": card.may_trade or "",
        "can trade": card.obstacle or "yes, on the current market",
        "version": card.partition_key,
        "spec hash": card.spec_hash,
        "made from": card.made_from or "",
        "run": card.run_id,
        "code": card.code_version,
        "processor": card.processor and f"{card.processor}; on others the same training gives other bytes",
        "seeds": ", ".join(map(str, card.seeds)),
        "market": f"{card.source}, panel {card.panel_digest}",
        "snapshots": ", ".join(f"{table} {snapshot}" for table, snapshot in sorted(card.snapshot_ids.items())),
        "policies": card.policies_sha256,
        "deflated": ""
        if card.deflated_sharpe is None
        else f"{card.deflated_sharpe:.2f}, information ratio against the best baseline, {describe_period(card.period)}",
    }
    return {name: value for name, value in facts.items() if value}


def _score_row(name: str, row: Row) -> Row:
    return {
        "account": name,
        "period": row["period"],
        **_sharpe_columns(row),
        "CAGR": annual_cell(row, "cagr", ".1%"),
        "max DD": f"{row['max_drawdown']:.0%}",
        "turnover/y": annual_cell(row, "turnover_per_year", ".1f"),
        "sessions": f"{row['first_session']} to {row['last_session']}",
    }


def _sharpe_columns(row: Row | None) -> dict[str, str]:
    """Sharpe ratio and difference to the best baseline with intervals; empty without a verdict."""
    own = row or {"sharpe": None}
    difference = own if own.get("sharpe_difference") is not None else {"sharpe_difference": None, "best_baseline": ""}
    names = ("net Sharpe", "Sharpe 95 %", "less best baseline", "difference 95 %")
    cells = dict(zip(names, (*sharpe_cells(own), *difference_cells(difference)), strict=True))
    return {**cells, "best baseline": difference["best_baseline"]}


PAGES = {
    "list": lambda answer: print_library(answer.document, everything=answer.arguments["seeds"]),
    "show": lambda answer: print_card(answer.document),
    "tear_sheet": lambda answer: print_tear_sheet(answer.document),
    "activate": print_new_decision,
    "promote": print_new_decision,
}
