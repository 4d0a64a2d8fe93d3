"""`nvtrader portfolio`: where an account stands."""

import json
import sys
from collections.abc import Mapping
from typing import Any

import polars as pl

from nvtrader_pipelines.service.errors import one_sentence
from nvtrader_pipelines.service.options import Account, AsJson, Verbose, found_home
from nvtrader_pipelines.service.tables import print_line, print_lines, print_part

SCHEMA = {
    "symbol": pl.String,
    "shares": pl.Float64,
    "price": pl.Float64,
    "value": pl.Float64,
    "weight": pl.Float64,
}


def portfolio(account: Account = "paper", *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show where an account stands: positions, cash, equity, the last plan, what waits, whether trading is stopped."""
    from nvtrader_pipelines.service.account_facts import AccountFacts, standing
    from nvtrader_pipelines.storage.accounts import read_account
    from nvtrader_pipelines.storage.active_policy import read_active
    from nvtrader_pipelines.storage.readiness import told_until

    with one_sentence(verbose=verbose):
        home = found_home()
        kind, active = read_account(home, account).kind, read_active(home)
        document = {
            "kind": kind,
            "active_policy": active
            and {"policy": active.policy, "run_id": active.run_id, "may_trade": told_until(home, active)},
            **standing(AccountFacts.of(home, account)),
        }
        if as_json:
            sys.stdout.write(json.dumps(document, indent=1, default=str) + "\n")
        else:
            print_standing(document)


def print_standing(document: Mapping[str, Any]) -> None:
    """The account as a person reads it."""
    active = document["active_policy"]
    lines = {
        "account": f"{document['account']} ({document['kind']})",
        "active policy": f"{active['policy']} of run {active['run_id']}"
        if active
        else "none: nvtrader policies activate NAME",
        **({"it may trade": active["may_trade"]} if active else {}),
        **(_book_lines(document) if "session" in document else {"session": "not opened yet: nvtrader paper"}),
        "last plan": _plan_line(document["last_plan"]),
        "waits for you": ", ".join(document["waiting"]),
        "open orders": ", ".join(document["open_orders"]),
    }
    print_lines(lines)
    stopped = document["kill_switch"]
    switch = f"engaged: {stopped}" if stopped else "not engaged"
    print_line(f"{'kill switch':<16} {switch}", "bold red" if stopped else None)
    if "session" in document:
        rows = pl.DataFrame(
            [{**each, "weight": 100.0 * each["weight"]} for each in document["positions"]], schema=SCHEMA
        )
        shown = rows.with_columns(pl.col("shares").round(4), pl.col("price", "value", "weight").round(2))
        print_part("positions", shown.rename({"weight": "weight %"}), "all in cash")


def _book_lines(document: Mapping[str, Any]) -> dict[str, str]:
    differences = "; ".join(document["differences"])
    return {
        "session": str(document["session"]),
        "equity": f"{document['value']:,.2f}, {document['equity'] - 1:+.2%} since the opening",
        "that session": f"{document['net_return']:+.2%}",
        "drawdown": f"{document['drawdown']:.1%}",
        "cash": f"{document['cash']:,.2f} ({document['cash_weight']:.1%})",
        "reconciliation": f"DIFFERS: {differences}" if differences else "as expected",
    }


def _plan_line(plan: Mapping[str, Any] | None) -> str:
    if plan is None:
        return "none yet"
    why = f": {plan['reason']}" if plan["reason"] else ""
    return f"{plan['plan_id']} of {plan['session']}, {plan['status']}{why}"
