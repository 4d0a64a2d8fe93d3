"""`nvtrader trade`: the account day by day, replayed or carried on, held to the back-test of the same sessions."""

import json
import sys
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nvtrader_pipelines.service.cli.errors import one_sentence
from nvtrader_pipelines.service.cli.options import Account, AsJson, Verbose, open_store, person
from nvtrader_pipelines.service.cli.tables import print_line, print_lines, wide_console
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.desk.desk import Desk
    from nvtrader_pipelines.execution.errors import NotReconciled
    from nvtrader_pipelines.service.documents.account_facts import AccountFacts

Days = tuple[date | None, date | None]  # first and last, both included
Day = Annotated[datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="First session to trade.")]
LastDay = Annotated[datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="Last session to trade.")]
WAIT = "With --from or --to: leave soft findings to a person, too; without them they always wait."
Wait = Annotated[bool, typer.Option("--wait", help=WAIT)]


def trade(
    first: Day = None,
    last: LastDay = None,
    account: Account = "paper",
    *,
    wait: Wait = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Trade the active policy on an account, every session that is due; with --from or --to, replay a history.

    A replay acknowledges soft findings itself, unless --wait. Otherwise it stops at a plan that waits for you; the next
    call resumes, and a plan that is not approved by then has expired. If the account's holdings differ from what was
    expected, the command ends with 1, and nothing trades until you correct the holdings or
    `nvtrader portfolio accept-differences`.

    Orders pass compliance and are placed on the account. `nvtrader runs forward` places none: it walks any run's
    policies over the sessions since their tests, as one more run to compare.
    """
    from nvtrader_pipelines.desk.desk import Desk
    from nvtrader_pipelines.storage.views import publish

    with one_sentence(verbose=verbose):
        store, days = open_store(), (first.date() if first else None, last.date() if last else None)
        require_history(store, account, days)
        desk, acknowledge = Desk.open(store, account, by=person()), days != (None, None) and not wait
        differs = traded(desk, days, acknowledge=acknowledge, quiet=as_json)
        desk.mirror()
        publish(store)
        document = told(store, account, days)
        if as_json:
            sys.stdout.write(json.dumps(document, indent=1, default=str) + "\n")
        else:
            print_account(document)
        if differs:
            raise differs


def require_history(store: Store, account: str, days: Days) -> None:
    """Refuse days that an account cannot be traded on.

    Raises:
        ValueError: if it is at a broker, to begin without a first day, or was begun and its book is lost.
    """
    from nvtrader_pipelines.desk.accounts import read_account
    from nvtrader_pipelines.service.documents.account_facts import AccountFacts

    first, last = days
    if days != (None, None) and (kind := read_account(store.home, account).kind) != "simulated":
        raise ValueError(
            f"a history is replayed on an account kept here, but {account} is at a broker (kind: {kind}), where "
            "the past cannot be traded; leave --from and --to out"
        )
    if last and not first and not AccountFacts.of(store, account).states:
        raise ValueError(f"a history must begin on a day, for the account {account} is not open yet; give --from, too")


def traded(desk: "Desk", days: Days, *, acknowledge: bool, quiet: bool) -> "NotReconciled | None":
    """Trade what is due, each session shown, to where a plan waits for a person; why it ended early, if it did.

    An account that differs is still told of before the command fails.
    """
    from nvtrader_pipelines.execution.errors import NotReconciled
    from nvtrader_pipelines.service.cli.watching import watching

    with watching(wide_console(), quiet=quiet) as watch:
        try:
            for step in desk.trade(*days, acknowledge=acknowledge, until_waiting=not acknowledge):
                watch(step)
        except NotReconciled as differs:
            return differs
    return None


def told(store: Store, account: str, days: Days) -> dict[str, Any]:
    """What happened on an account between two days, as a document.

    Its equity at the last of their sessions is held to that of the back-test, and so is its whole life up to there.
    """
    from nvtrader_pipelines.service.documents.account_facts import AccountFacts, happened

    facts = AccountFacts.of(store, account)
    curve = facts.curve
    document = happened(facts, *days)
    tested, missing = _backtest(store, facts)
    known = {"missing": missing} if tested is None else _difference(curve, tested, document["last_session"])
    picture = _picture(store.home, account, facts, tested) if len(curve) > 1 else None
    return {**document, "backtest": known, "picture": picture and str(picture)}


def _backtest(store: Store, facts: "AccountFacts") -> "tuple[pl.DataFrame | None, str]":
    """The back-test of an account's life, or why there is none."""
    from nvtrader_pipelines.desk.accounts import read_account
    from nvtrader_pipelines.desk.backtest import account_backtest, deployment_of

    opening, *sessions = facts.states
    traded = {(state.run_id, state.policy) for state in facts.states}
    if read_account(store.home, facts.name).kind != "simulated":
        return None, "the account is a broker's: its fills are its own"
    if not sessions:
        return None, "no session has been traded yet"
    if len(traded) > 1:
        return None, f"{len(traded)} policies have traded on the account"
    try:
        return account_backtest(deployment_of(store, *traded.pop()), opening.session, sessions[-1].session), ""
    except ValueError as error:  # the market has left the policy, which need not be the one that trades by now
        return None, str(error)


def _difference(curve: "pl.DataFrame", tested: "pl.DataFrame", last: date) -> dict[str, Any]:
    """The back-test's equity at the close of a session, and how far apart the two ever were up to there."""
    both = curve.join(tested.select("session", tested="equity"), on="session").sort("session")
    both = both.filter(both["session"] <= last)
    if both.is_empty():
        return {"missing": "no session of these days has been traded"}
    return {
        "n_sessions": len(both),
        "first_session": both["session"][0],
        "last_session": both["session"][-1],
        "equity": both["tested"][-1],
        "largest_difference": (both["equity"] - both["tested"]).abs().max(),
    }


def _picture(home: Home, account: str, facts: "AccountFacts", tested: "pl.DataFrame | None") -> Path:
    """Draw the account beside its back-test; where the picture lies."""
    import polars as pl

    from nvtrader_pipelines.figures.portfolio_figures import account_figure
    from nvtrader_pipelines.storage.files import write_atomically

    state = facts.states[-1]
    opening = facts.curve.select("session", "equity").head(1)  # both are 1 there
    rivals = {} if tested is None else {"back-test": pl.concat([opening, tested.select("session", "equity")])}
    note = f"Last traded by {state.policy} of run {state.run_id}. Paper fills are assumptions."
    path = home.pictures / "paper" / f"{account}.png"
    write_atomically(path, account_figure(facts.curve, f"Account {account} until {state.session}", rivals, note))
    return path


def print_account(document: Mapping[str, Any]) -> None:
    """What happened, as a person reads it."""
    lines = {
        "account": f"{document['account']}, traded by {', '.join(document['policies'])}",
        "sessions": _session_line(document),
        "equity": f"{document['value']:,.2f}, {document['equity']:.6g} of the opening",
        **_figure_lines(document),
        "plans": _counted(document["n_plans"], document["plans"]),
        "findings": ", ".join(f"{n} {name}" for name, n in document["findings"].items()) or "none",
        "orders": f"{document['n_orders']} placed, {document['n_fills']} filled, {document['n_cancelled']} cancelled",
        "back-test": _backtest_line(document["backtest"]),
        "picture": document["picture"] or "",
    }
    print_lines(lines)
    for each in document["blocked"]:
        print_line(f"{'blocked':<16} {each['plan_id']} of {each['session']}: {'; '.join(each['findings'])}", "red")
    for session, differences in document["differences"].items():
        print_line(f"{'DIFFERS':<16} at the close of {session} from what was expected: {'; '.join(differences)}", "red")
    for plan in document["waiting"]:
        print_line(f"{'waits for you':<16} nvtrader plans show {plan}, then approve, override or reject", "yellow")
    if document["kill_switch"]:
        print_line(f"{'kill switch':<16} engaged: {document['kill_switch']}", "bold red")


def _session_line(document: Mapping[str, Any]) -> str:
    last = document["last_session"]
    if not document["n_sessions"]:
        return f"none yet; the account stands at the close of {last}"
    return f"{document['n_sessions']}, {document['first_session']} to {last}"


def _figure_lines(document: Mapping[str, Any]) -> dict[str, str]:
    if not document["n_sessions"]:
        return {}
    sharpe = document["sharpe"]
    return {
        "return": f"{document['total_return']:+.2%}",
        "net Sharpe": "" if sharpe is None else f"{sharpe:.2f}",
        "max drawdown": f"{document['max_drawdown']:.1%}",
        "turnover/y": f"{document['turnover_per_year']:.2f}",
        "cost/y": f"{document['cost_per_year']:.2%}",
    }


def _counted(n: int, parts: Mapping[str, int]) -> str:
    return f"{n}: {', '.join(f'{count} {name}' for name, count in parts.items())}" if n else "0"


def _backtest_line(found: Mapping[str, Any]) -> str:
    if "missing" in found:
        return f"none: {found['missing']}"
    return (
        f"{found['equity']:.6g} on {found['last_session']}; over {found['n_sessions']} sessions from "
        f"{found['first_session']} the account is never further from it than {found['largest_difference']:.1g}"
    )
