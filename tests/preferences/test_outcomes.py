import datetime as dt

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.envs.dynamics import market_legs
from nvtrader_pipelines.market.look_ahead import cut_after, with_other_future
from nvtrader_pipelines.portfolio.costs import ProportionalCost, total_cost
from nvtrader_pipelines.preferences.decisions import HORIZON
from nvtrader_pipelines.preferences.outcomes import OutcomeMarket, decision_outcomes
from tests.markets import synthetic_panel, with_values
from tests.panels import DELISTED, LAST_PRICE, MAX_GAP, STEADY, eventful_panel
from tests.preferences.sample_decisions import a_decision

BPS = 10.0
PANEL = synthetic_panel(60, 3)
NAMES = (*PANEL.symbols, "cash")
HELD, WANTED, MINE = (0.2, 0.0, 0.3, 0.5), (0.4, 0.1, 0.0, 0.5), (0.1, 0.2, 0.3, 0.4)
FAR = dt.date(2100, 1, 1)
T = 30


def market(panel=PANEL, fill="next_open", spy=None):
    return OutcomeMarket(panel, market_legs(panel, fill), total_cost((ProportionalCost(bps=BPS),), panel), spy)


def decision(n=0, kind="approved", t=T, panel=PANEL, **fields):
    chosen = {"approved": WANTED, "edited": MINE, "rejected": HELD, "overridden": HELD}.get(kind)
    weights = {"held_weights": HELD, "proposed_weights": WANTED, "chosen_weights": chosen}
    own = {"symbols": (*panel.symbols[:3], "cash"), "session": panel.sessions[t].item(), "decision": kind, **weights}
    return a_decision(n, **{**own, **fields})


def outcome(row, given=None, last=FAR):
    return decision_outcomes([row], given or market(), last).rows.row(0, named=True)


def by_hand(held, target, fill, t=T, panel=PANEL):
    """Net return over five sessions in percent, one holding after the other."""
    closes, nights = panel.close_returns, panel.overnight_returns
    before = nights[t + 1] if fill == "next_open" else closes[t + 1]
    values = [weight * (1.0 + gain) for weight, gain in zip(held, before, strict=False)]
    equity = sum(values) + held[-1]
    if target is not held:
        traded = sum(abs(wanted - value / equity) for wanted, value in zip(target, values, strict=False))
        equity *= 1.0 - BPS * 1e-4 * traded
        values = [wanted * equity for wanted in target[:-1]]
    cash = equity - sum(values)
    rest = [(1.0 + close) / (1.0 + first) for close, first in zip(closes[t + 1], before, strict=True)]
    for session in range(t + 2, t + HORIZON + 1):
        rest = [gain * (1.0 + close) for gain, close in zip(rest, closes[session], strict=True)]
    return 100.0 * (sum(value * gain for value, gain in zip(values, rest, strict=True)) + cash - 1.0)


def basket(*names, t=T):
    """Return of names bought in equal parts at the close."""
    gains = [np.prod(1.0 + PANEL.close_returns[t + 1 : t + 6, name]) for name in names]
    return 100.0 * (sum(gains) / len(gains) - 1.0)


@pytest.mark.parametrize("fill", ["next_open", "next_close"])
@pytest.mark.parametrize(
    ("kind", "chosen", "other", "label"),
    [
        ("approved", WANTED, HELD, "proposed"),
        ("edited", MINE, WANTED, "edited"),
        ("rejected", HELD, WANTED, "kept"),
        ("overridden", HELD, WANTED, "kept"),
    ],
)
def test_outcome_is_the_sum_done_by_hand(kind, chosen, other, label, fill):
    row = outcome(decision(kind=kind, reason="why"), market(fill=fill))
    benchmark, returns = basket(0, 1, 2), {each: by_hand(HELD, each, fill) for each in (WANTED, MINE, HELD)}
    assert row["proposed_return_pct"] == pytest.approx(returns[WANTED], abs=1e-10)
    assert row["chosen_return_pct"] == pytest.approx(returns[chosen], abs=1e-10)
    assert row["kept_return_pct"] == pytest.approx(returns[HELD], abs=1e-10)
    assert row["excess_pct"] == pytest.approx(returns[chosen] - returns[other], abs=1e-10)
    assert row["chosen_vs_spy_pct"] == pytest.approx(returns[chosen] - benchmark, abs=1e-10)
    assert (row["benchmark"], row["benchmark_return_pct"]) == ("1/N", pytest.approx(benchmark))
    assert row["outcome_t5_return_pct"] == pytest.approx(basket(0, 1, 2))
    assert row["outcome_t5_vs_spy_pct"] == pytest.approx(0.0, abs=1e-10)
    traded = {WANTED: (0, 1, 2), MINE: (0, 1), HELD: ()}[chosen]
    assert row["chosen_basket_return_pct"] == (pytest.approx(basket(*traded)) if traded else None)
    is_chosen_better = returns[chosen] > returns[other]
    sides = {WANTED: "proposed", MINE: "edited", HELD: "kept"}
    assert row["market_side"] == sides[chosen if is_chosen_better else other]
    assert (row["label"], row["reason"], row["weight"]) == (label, "why", 1.0)
    assert row["outcome_session"] == PANEL.sessions[T + 5].item()


@pytest.mark.parametrize(
    ("fields", "weight", "label"),
    [
        ({}, 1.0, "proposed"),
        ({"outcome_known": True}, 0.0, "proposed"),
        ({"kind": "skipped"}, 0.0, "skipped"),
        ({"kind": "equal"}, 0.0, "equal"),
        ({"parent_id": "c" * 16}, 0.0, "proposed"),  # of a person's own plan
        ({"kind": "edited", "parent_id": "c" * 16}, 1.0, "edited"),
        ({"proposed_weights": HELD, "chosen_weights": HELD}, 0.0, "proposed"),  # nothing to compare
    ],
)
def test_only_a_judgement_of_a_proposal_with_foresight_has_weight(fields, weight, label):
    row = outcome(decision(**fields))
    assert (row["weight"], row["label"]) == (weight, label)
    replayed = outcome(decision(**{**fields, "outcome_known": True}))
    is_practice = weight == 1.0 or fields.get("outcome_known", False)
    assert (replayed["practice"], replayed["weight"], row["practice"]) == (is_practice, 0.0, "outcome_known" in fields)
    columns = row.keys() - {"weight", "practice"}
    assert {name: replayed[name] for name in columns} == {name: row[name] for name in columns}
    if label in {"skipped", "equal"}:
        assert row["chosen_return_pct"] is row["excess_pct"] is row["chosen_basket_vs_spy_pct"] is None
        assert row["market_side"] in {"proposed", "kept"}


def test_edit_of_an_own_edit_has_no_weight():
    first = decision(1, "edited", plan_id="a" * 16, parent_id="b" * 16)
    second = decision(2, "edited", plan_id="c" * 16, parent_id="a" * 16, proposed_weights=MINE, chosen_weights=WANTED)
    assert decision_outcomes([first, second], market(), FAR).rows["weight"].to_list() == [1.0, 0.0]


def test_excess_is_over_spy_in_sessions_that_all_have_it():
    spy = np.full(len(PANEL.sessions), 0.01)
    row = outcome(decision(), market(spy=spy))
    assert (row["benchmark"], row["benchmark_return_pct"]) == ("SPY", pytest.approx(100.0 * (1.01**5 - 1.0)))
    assert row["proposed_vs_spy_pct"] == pytest.approx(row["proposed_return_pct"] - row["benchmark_return_pct"])
    for gap, name in ((T, "SPY"), (T + 1, "1/N"), (T + 5, "1/N"), (T + 6, "SPY")):
        missing = spy.copy()
        missing[gap] = np.nan
        assert outcome(decision(), market(spy=missing))["benchmark"] == name


def test_outcome_comes_with_its_fifth_session_and_not_before():
    fifth = PANEL.sessions[T + 5].item()
    for last, n_rows in ((fifth, 1), (fifth - dt.timedelta(days=1), 0)):
        outcomes = decision_outcomes([decision()], market(), last)
        assert (len(outcomes.rows), outcomes.n_pending) == (n_rows, 1 - n_rows)
    cut = decision_outcomes([decision()], market(cut_after(PANEL, T + 4)), FAR)
    assert (len(cut.rows), cut.n_pending) == (0, 1)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(10, 50), st.sampled_from(["approved", "edited", "rejected", "skipped"]), st.integers(0, 9))
def test_later_prices_do_not_change_an_outcome(t, kind, seed):
    row = decision(kind=kind, t=t)
    whole = outcome(row)
    assert outcome(row, market(cut_after(PANEL, t + 5))) == whole
    assert outcome(row, market(with_other_future(PANEL, t + 5, seed))) == whole


def test_decisions_are_independent_of_one_another_and_of_the_order_of_symbols():
    rows = [decision(n, kind, t) for n, (kind, t) in enumerate((("approved", 20), ("edited", 31), ("rejected", 20)))]
    turned = [
        row.model_copy(
            update={
                "symbols": (NAMES[2], NAMES[0], NAMES[1], "cash"),
                **{
                    name: tuple(np.array(getattr(row, name))[[2, 0, 1, 3]].tolist())
                    for name in ("held_weights", "proposed_weights", "chosen_weights")
                },
            }
        )
        for row in reversed(rows)
    ]
    alone = pl.concat([decision_outcomes([row], market(), FAR).rows for row in rows])
    assert decision_outcomes(rows, market(), FAR).rows.equals(alone)
    assert decision_outcomes(turned, market(), FAR).rows.reverse().equals(alone)


def test_delisted_name_is_paid_out_without_cost_and_buys_another():
    panel, t = eventful_panel(), LAST_PRICE + MAX_GAP + 2
    held, wanted = np.zeros((2, len(panel.symbols) + 1))
    held[[DELISTED, -1]], wanted[[STEADY, -1]] = 0.5, (0.9, 0.1)
    weights = {"held_weights": held, "proposed_weights": wanted, "chosen_weights": wanted}
    row = outcome(decision(t=t, panel=panel, **{"symbols": (*panel.symbols, "cash"), **weights}), market(panel))
    night, days = panel.overnight_returns[t + 1, STEADY], panel.close_returns[t + 1 : t + 6, STEADY]
    gain = np.prod(1.0 + days) / (1.0 + night)
    assert row["proposed_return_pct"] == pytest.approx(100.0 * ((1.0 - 0.9 * BPS * 1e-4) * (0.9 * gain + 0.1) - 1.0))
    assert row["kept_return_pct"] == pytest.approx(0.0, abs=1e-12)


def test_name_without_a_price_at_the_fill_is_not_traded():
    untraded = with_values(PANEL, "tradable", (T + 1, 1), False)
    row = outcome(decision(), market(untraded))
    assert row["proposed_return_pct"] == pytest.approx(by_hand(HELD, (0.4, 0.0, 0.0, 0.6), "next_open"), abs=1e-10)


def test_decision_on_names_that_the_market_lacks_has_a_reason_instead():
    lacking = decision(1, symbols=("OLD", *NAMES[1:]))
    early = decision(2).model_copy(update={"session": dt.date(1990, 1, 2)})
    unheld = decision(
        3,
        symbols=(*NAMES[:3], "GONE", "cash"),
        **{
            name: (*weights[:3], 0.0, weights[3])
            for name, weights in (("held_weights", HELD), ("proposed_weights", WANTED), ("chosen_weights", WANTED))
        },
    )
    outcomes = decision_outcomes([lacking, early, unheld], market(), FAR)
    assert outcomes.rows["decision_id"].to_list() == [unheld.decision_id]
    assert outcomes.rows["proposed_return_pct"][0] == outcome(decision())["proposed_return_pct"]
    assert set(outcomes.problems) == {lacking.decision_id, early.decision_id}
    assert "OLD" in outcomes.problems[lacking.decision_id]
