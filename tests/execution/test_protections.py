from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.components.component import members
from nvtrader_pipelines.execution.audit import TradingState
from nvtrader_pipelines.execution.protections import (
    CooldownProtection,
    DrawdownProtection,
    NameProtection,
    ProtectedSwitch,
    Protection,
    TradingLock,
    locked_purchases,
)
from nvtrader_pipelines.testing.synthetic_panels import synthetic_panel
from tests.panels import with_other_future
from tests.storage.test_account_book import state

PANEL = synthetic_panel(40, 2)
DAYS = PANEL.sessions.tolist()
START = DAYS[0]
EQUITIES = st.lists(st.floats(0.5, 1.5), min_size=1, max_size=30)
EVERY_PROTECTION = pytest.mark.parametrize("member", members(Protection))


def states(equities, weights=(0.5, 0.0)):
    """States of an account at the first closes; the weights of AAA and BBB may be a row per close."""
    rows = np.broadcast_to(weights, (len(equities), 2)).tolist()
    return [
        state(day, symbols=("AAA", "BBB", "cash"), weights=(*row, 1.0 - sum(row)), equity=equity, peak=2.0)
        for day, row, equity in zip(DAYS, rows, equities, strict=False)
    ]


def priced(*returns):
    """Panel with these returns of AAA and BBB at each of its first sessions, then none."""
    closes = np.zeros(PANEL.close_returns.shape)
    closes[: len(returns)] = np.array(returns)
    return replace(PANEL, close_returns=closes)


def test_max_drawdown_halts_at_its_bound_until_a_start():
    equities = [1.0, 1.1, 0.9, 0.88, 1.2]
    protection = DrawdownProtection(fraction=0.2)
    assert protection.locks(states(equities[:3]), PANEL, START) == ()
    (lock,) = protection.locks(states(equities), PANEL, START)
    assert (lock.state, lock.symbol, lock.session, lock.until) == ("halted", None, DAYS[3], None)
    assert lock.loss == pytest.approx(0.2)
    assert protection.locks(states(equities), PANEL, DAYS[3]) == ()  # a person started it again at that close


@given(equities=EQUITIES)
def test_max_drawdown_once_halted_keeps_its_first_lock(equities):
    found = [DrawdownProtection().locks(states(equities[:n]), PANEL, START) for n in range(1, len(equities) + 1)]
    halts = [locks for locks in found if locks]
    drawdowns = 1.0 - np.array(equities) / np.maximum.accumulate(equities)
    assert len(halts) == np.maximum.accumulate(drawdowns >= 0.2 - 1e-9).sum()
    assert len(set(halts)) <= 1


def test_loss_cooldown_ends_a_pause_after_the_last_loss():
    equities = [1.0, 1.0, 0.95, 0.95, 0.95, 0.95]
    protection = CooldownProtection(loss=0.05, sessions=2, pause=2)
    found = [protection.locks(states(equities[:n]), PANEL, START) for n in range(1, 7)]
    assert [state_under(locks) for locks in found] == ["active"] * 2 + ["reducing"] * 3 + ["active"]
    assert [DAYS.index(lock.session) for (lock,) in found[2:5]] == [2, 3, 3]
    assert [DAYS.index(lock.until) for (lock,) in found[2:5]] == [4, 5, 5]
    assert found[2][0].loss == pytest.approx(0.05)


@given(equities=EQUITIES, sessions=st.integers(1, 6), pause=st.integers(1, 6))
def test_loss_cooldown_equals_a_count_of_sessions(equities, sessions, pause):
    protection = CooldownProtection(sessions=sessions, pause=pause)
    last = len(equities) - 1
    losses = {t: 1.0 - equities[t] / equities[t - sessions] for t in range(sessions, last + 1)}
    recent = [t for t, loss in losses.items() if loss >= 0.05 - 1e-9 and last - t < pause]
    locks = protection.locks(states(equities), PANEL, START)
    assert [DAYS.index(lock.session) for lock in locks] == recent[-1:]
    assert protection.locks(states(equities)[-(sessions + pause) :], PANEL, START) == locks


def test_name_pause_bans_only_a_name_held_at_every_close():
    panel = priced((0.3, 0.3), (-0.052, -0.052), (-0.052, -0.052))
    weights = [(0.5, 0.0), (0.5, 0.4), (0.4, 0.4), (0.0, 0.4), (0.0, 0.4)]
    protection = NameProtection(loss=0.1, sessions=3, pause=2)
    found = [protection.locks(states([1.0] * n, weights[:n]), panel, START) for n in range(1, 6)]
    assert [list(locked_purchases(locks)) for locks in found] == [[], [], ["AAA"], ["AAA"], []]
    (lock,) = found[2]
    assert (lock.state, lock.session, lock.until) == ("active", DAYS[2], DAYS[4])
    assert lock.loss == pytest.approx(1.0 - 0.948**2)


def test_name_pause_counts_no_short_position_and_no_small_loss():
    panel = priced((0.0, 0.0), (-0.5, -0.099))
    assert NameProtection(sessions=2).locks(states([1.0, 1.0], (-0.5, 0.5)), panel, START) == ()


@EVERY_PROTECTION
@given(seed=st.integers(0, 99), n=st.integers(1, 30))
def test_protection_reads_no_session_after_the_last_state(member, seed, n):
    protection = member.model_validate({"loss": 0.02} if "loss" in member.model_fields else {"fraction": 0.02})
    panel = replace(PANEL, close_returns=np.random.default_rng(seed).normal(-0.01, 0.02, PANEL.close_returns.shape))
    equities = np.cumprod(1.0 + panel.close_returns.mean(axis=1)).tolist()
    past = states(equities[:n], (0.5, 0.5))
    locks = protection.locks(past, panel, START)
    assert protection.locks(past, with_other_future(panel, n - 1), START) == locks
    assert all(lock.session <= DAYS[n - 1] and (lock.until is None or lock.until > DAYS[n - 1]) for lock in locks)


@EVERY_PROTECTION
@pytest.mark.parametrize("equities", [[], [1.0], [1.0] + [0.0] * 12])
def test_protection_takes_a_new_and_a_ruined_account(member, equities):
    locks = member().locks(states(equities), PANEL, START)
    assert [lock.loss for lock in locks] == ([1.0] if member is DrawdownProtection and 0.0 in equities else [])


def test_state_of_several_locks_is_the_strictest_and_a_halt_stays():
    locks = [TradingLock(state, None, 0.1, START, None, state) for state in ("reducing", "halted", "active")]
    assert [state_under(locks[:n]) for n in range(4)] == ["active", "reducing", "halted", "halted"]
    assert state_under(locks[:1], "halted") == "halted"
    switch = Switch()
    assert ProtectedSwitch(switch, "robo", lambda: locks, switch.halt).state().reason == "halted"
    assert ProtectedSwitch(switch, "robo", tuple, switch.halt).state().state == "halted"


class Switch:
    """Kill switch in memory."""

    def __init__(self, state="active"):
        self.now = TradingState(state=state)

    def state(self):
        return self.now

    def halt(self, reason):
        self.now = TradingState(state="halted", reason=reason)


def state_under(locks, state="active"):
    """State of a switch under locks."""
    switch = Switch(state)
    return ProtectedSwitch(switch, "robo", lambda: locks, switch.halt).state().state


def test_pause_is_counted_in_sessions_of_the_market():
    tuesday = DAYS.index(np.datetime64("2015-01-20").item())  # the market was closed on Monday
    (lock,) = CooldownProtection(sessions=1, pause=1).locks(states([1.0] * (tuesday - 1) + [0.9]), PANEL, START)
    assert (lock.session.isoformat(), lock.until) == ("2015-01-16", DAYS[tuesday])
