"""Pictures of a traded account, of what the stages did, and of a plan."""

import json

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.figures import portfolio_figures
from nvtrader_pipelines.figures.portfolio_figures import (
    account_figure,
    account_figures,
    plan_figure,
    plan_figures,
    stages_figure,
    stages_figures,
)
from tests.figures.pictures import pixels
from tests.markets import synthetic_sessions

SYMBOLS = [*(f"N{i:02d}" for i in range(20)), "cash"]
STAGES = ("policy", "static_universe", "policy_action", "constant", "position_cap", "gross_exposure")


def states(n_sessions=60, seed=0):
    generator = np.random.default_rng(seed)
    equity = np.cumprod(1.0 + generator.normal(0.0005, 0.01, n_sessions))
    return pl.DataFrame(
        {
            "session": synthetic_sessions(n_sessions).tolist(),
            "equity": equity,
            "drawdown": 1.0 - equity / np.maximum(np.maximum.accumulate(equity), 1.0),
            "cash": np.full(n_sessions, 0.1),
            "turnover": np.where(np.arange(n_sessions) % 5 == 0, 0.1, 0.0),
        }
    )


def target_weights(cap=0.1):
    generator = np.random.default_rng(1)
    held, proposal = generator.dirichlet(np.ones(21), 2)
    cut = np.append(np.minimum(proposal[:-1], cap), 0.0)
    cut[-1] = 1.0 - cut.sum()
    weights = [held, *[proposal] * 4, cut, cut]
    return pl.DataFrame(
        [
            {
                "step": step,
                "stage": stage,
                "symbol": symbol,
                "weight": weights[step + 1][i],
                "change": weights[step + 1][i] - weights[step][i],
                "reason": f"cut to {cap:.1%}" if stage == "position_cap" else "",
            }
            for step, stage in enumerate(STAGES)
            for i, symbol in enumerate(SYMBOLS)
        ]
    )


def plan(n_findings=2):
    held, target = np.random.default_rng(2).dirichlet(np.ones(21), 2)
    levels = ("warn", "soft", "hard")
    findings = [
        {"level": levels[i % 3], "sentence": f"finding {i} says a few words of what was found, and what the bound is"}
        for i in range(n_findings)
    ]
    weights = {"held_weights": held.tolist(), "target_weights": target.tolist()}
    return {"symbols": SYMBOLS, **weights, "findings": json.dumps(findings)}


@pytest.mark.slow
@pytest.mark.parametrize("n_sessions", [1, pytest.param(60, marks=pytest.mark.nightly)])
def test_an_account_is_drawn_from_its_first_session_on(n_sessions, tmp_path):
    drawn = pixels(account_figure(states(n_sessions), "paper").png(), tmp_path)
    assert drawn.shape[:2] == (900, 1599)
    blue = np.all(np.abs(drawn - np.array([0, 0x72, 0xB2]) / 255) < 0.02, axis=2)
    assert blue.any()


@pytest.mark.slow
def test_reference_is_rescaled_and_dropped_without_common_sessions():
    twin = states().select("session", pl.col("equity") * 7.0)
    elsewhere = twin.with_columns(pl.col("session").dt.offset_by("10y"))
    beside = account_figure(states(), "paper", {"back-test": twin}).png()
    rebased = states().select("session", "equity")
    assert beside == account_figure(states(), "paper", {"back-test": rebased, "other sessions": elsewhere}).png()
    assert beside != account_figure(states(), "paper", {"other sessions": elsewhere}).png()


@pytest.mark.slow
def test_what_a_stage_changed_is_told_apart_from_what_it_left(tmp_path):
    drawn = stages_figure(target_weights(), "weights").png()
    assert pixels(drawn, tmp_path).shape[:2] == (900, 1599)
    assert drawn != stages_figure(target_weights(cap=0.2), "weights").png()


@pytest.mark.slow
def test_a_plan_is_drawn_with_what_compliance_found_the_gravest_first():
    turned = plan(9)
    turned["findings"] = json.dumps(sorted(json.loads(turned["findings"]), key=lambda each: each["level"]))
    assert plan_figure(turned, "plan").png() == plan_figure(plan(9), "plan").png()


def test_an_account_that_holds_nothing_but_cash_has_a_plan_too(tmp_path):
    empty = {"symbols": ["A", "cash"], "held_weights": [0.0, 1.0], "target_weights": [0.0, 1.0], "findings": "[]"}
    assert pixels(plan_figure(empty, "plan").png(), tmp_path).shape[:2] == (900, 1599)


def test_of_an_account_that_did_nothing_there_is_no_picture():
    nothing = states().clear()
    assert account_figures(nothing) == stages_figures(nothing) == plan_figures(nothing) == {}


@pytest.mark.parametrize("reason", ["", "it was waiting when its session came"])
def test_what_is_said_of_a_plan_under_its_picture_is_one_sentence(reason, monkeypatch):
    notes = list[str]()
    monkeypatch.setattr(portfolio_figures, "plan_figure", lambda _plan, _title, note: notes.append(note) or b"")
    (session,) = synthetic_sessions(1).tolist()
    kept = {"account": "paper", "session": session, "status": "cancelled", "plan_id": "ab", "turnover": 0.1}
    plan_figures(pl.DataFrame([{**kept, "reason": reason}]))
    assert notes == [f"Plan ab, one-way turnover 10.0%{'; ' if reason else ''}{reason}"]
