import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.envs.actions import LeveredSimplexAction
from nvtrader_pipelines.envs.rewards import BenchmarkRelative, CvarExcess, LogGrowth
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.backtest import (
    ACTION_LOG,
    EQUITY,
    REWARD_TERM,
    BacktestRecord,
    PolicyAccount,
    backtest,
    walk,
)
from nvtrader_pipelines.evaluation.invariants import equity_gaps, off_portfolio, reward_gaps
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight
from nvtrader_pipelines.policies.pipeline_policy import PipelinedPolicy
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.policies.rollout_tables import TRAJECTORY
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, Thresholds, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.limits import GrossExposure, PositionCap
from tests.panels import DELISTED, INELIGIBLE, LAST_PRICE, MAX_GAP, NEVER, cut, eventful_panel, with_other_future

PANEL = eventful_panel()
FOLDS = [Fold(0, 0, 33, 40, 62), Fold(1, 20, 56, 63, 99)]  # 23 and 37 sessions: not whole steps
SPEC = EnvSpec(rewards=(LogGrowth(), BenchmarkRelative(), CvarExcess(limit=0.0)), vol_penalty=1.0)
TABLES = ("trajectories", "equity_curves", "action_logs", "reward_decomposition")


class Noted:
    """Wants weights drawn anew at every session, the same whenever it is asked; notes what it was asked."""

    def __init__(self, seed=0, *, only_eligible=True):
        self.seed, self.only_eligible, self.asked = seed, only_eligible, []

    def decide(self, panel, t, account):
        self.asked.append((t, account))
        target = np.random.default_rng([self.seed, t]).dirichlet(np.full(7, 0.5))
        if self.only_eligible:
            target[:-1] *= panel.eligible[t]
            target[-1] = max(0.0, 1.0 - target[:-1].sum())
        return Decision(target=target)


class Learned(Noted):
    """As a trained policy, it says what it saw and thought too."""

    def decide(self, panel, t, account):
        target = super().decide(panel, t, account).target
        return Decision(
            target=target, action=np.full(7, t, dtype=np.float32), observation_hash=-t, value=0.5, log_prob=-1.0
        )


def policy_accounts(n_folds=2):
    return [
        PolicyAccount("noted", "ensemble", (None,) * n_folds, (Noted(1),) * n_folds),
        PolicyAccount("learned/seed-3", "policy", (3,) * n_folds, (Learned(2),) * n_folds),
        PolicyAccount("equal_weight", "baseline", (None,) * n_folds, (EqualWeight().start(),) * n_folds),
        PolicyAccount("buy_and_hold", "baseline", (None,) * n_folds, (BuyAndHold().start(),) * n_folds),
    ]


def walked(panel=PANEL, spec=SPEC, folds=FOLDS, who=None) -> BacktestRecord:
    return backtest(panel, spec, folds, who or policy_accounts(len(folds)))


def rows_of(table, policy):
    return table.filter(pl.col("policy") == policy)


def test_record_has_one_row_per_step_session_and_term():
    record = walked()
    for name, schema in zip(TABLES, (TRAJECTORY, EQUITY, ACTION_LOG, REWARD_TERM), strict=True):
        assert dict(getattr(record, name).schema) == schema
    n_sessions, n_steps = 60, 12
    assert [len(getattr(record, name)) for name in TABLES] == [
        4 * n_steps,
        4 * n_sessions,
        4 * n_steps,
        4 * n_steps * 4,
    ]


@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
def test_every_identity_of_a_record_holds(fill):
    record = walked(spec=SPEC.model_copy(update={"fill": fill}))
    assert equity_gaps(record.equity_curves).is_empty()
    assert off_portfolio(record.action_logs, RiskLimits()).is_empty()
    assert reward_gaps(record.trajectories, record.reward_decomposition).is_empty()


def test_equity_curve_has_every_test_session_once_with_its_fold():
    curve = rows_of(walked().equity_curves, "noted")
    assert curve["session"].to_list() == PANEL.sessions[40:100].tolist()
    last_of_fold_0 = curve.filter(pl.col("fold") == 0)["session"].max()
    assert last_of_fold_0 == PANEL.sessions[64].item()  # the decision at 59 belongs to fold 0 and is held to 64
    assert curve["fold"].is_sorted()


def test_decisions_start_before_first_test_session_every_rebal_freq():
    noted = Noted()
    record = walked(who=[PolicyAccount("noted", "policy", (0, 0), (noted, noted))])
    assert [t for t, _ in noted.asked] == list(range(39, 99, 5))
    steps = record.trajectories
    assert steps["step"].to_list() == list(range(12))
    assert steps["session"].to_list() == [PANEL.sessions[t].item() for t in range(39, 99, 5)]
    assert steps["fill_session"].to_list() == [PANEL.sessions[t + 1].item() for t in range(39, 99, 5)]
    assert steps["truncated"].to_list() == [False] * 11 + [True]
    assert not steps["terminated"].any()


def test_a_fill_at_the_same_close_is_recorded_as_such():
    steps = walked(spec=SPEC.model_copy(update={"fill": "same_close"})).trajectories
    assert (steps["session"] == steps["fill_session"]).all()


def test_the_last_step_ends_with_the_data_and_may_be_short():
    curve = rows_of(walked(folds=[Fold(0, 0, 33, 40, 52)]).equity_curves, "noted")
    assert len(curve) == 13
    assert curve["session"][-1] == PANEL.sessions[52].item()


def test_each_fold_uses_its_policy_and_the_account_carries_over():
    first, second = Noted(1), Noted(2)
    walked(who=[PolicyAccount("noted", "policy", (0, 0), (first, second))])
    assert [t for t, _ in first.asked] == list(range(39, 60, 5))
    assert [t for t, _ in second.asked] == list(range(64, 99, 5))
    assert second.asked[0][1].equity != 1.0
    assert second.asked[0][1].weights[-1] < 1.0


def test_an_account_is_told_its_own_weights_equity_and_peak():
    noted = Noted(1)
    record = walked(who=[PolicyAccount("noted", "policy", (0, 0), (noted, noted)), *policy_accounts()[1:]])
    equity = [1.0, *rows_of(record.equity_curves, "noted")["equity"]]
    for step, (_, account) in enumerate(noted.asked):
        assert account.equity == equity[5 * step]
        assert account.peak == max(equity[: 5 * step + 1])
        assert account.weights.sum() == pytest.approx(1.0, abs=1e-12)


def test_a_contestant_fares_alike_alone_and_beside_others():
    alone, beside = walked(who=policy_accounts()[:1]), walked()
    for name in TABLES:
        assert getattr(alone, name).equals(rows_of(getattr(beside, name), "noted"))


def test_record_has_policy_outputs_of_learned_policies_only():
    steps = walked().trajectories
    learned = rows_of(steps, "learned/seed-3")
    assert learned["observation_hash"].to_list() == [-t for t in range(39, 99, 5)]
    assert learned["action"][0].to_list() == [39.0] * 7
    assert (learned["seed"][0], learned["value"][0], learned["log_prob"][0]) == (3, 0.5, -1.0)
    for column in ("seed", "action", "observation_hash", "value", "log_prob"):
        assert rows_of(steps, "equal_weight")[column].null_count() == 12


def test_recorder_copies_actions_of_reused_arrays():
    class Thrifty(Learned):
        action = np.zeros(7, dtype=np.float32)

        def decide(self, panel, t, account):
            self.action[:] = t
            return replace(super().decide(panel, t, account), action=self.action)

    who = [PolicyAccount("thrifty", "policy", (0, 0), (Thrifty(), Thrifty()))]
    rows = backtest(PANEL, SPEC, FOLDS, who).trajectories
    assert rows["action"].list.first().n_unique() == len(rows)


def test_untraded_account_pays_nothing_and_targets_held_weights():
    record = walked()
    curve = rows_of(record.equity_curves, "buy_and_hold")
    assert (curve["turnover"] > 0.0).sum() == (curve["cost"] > 0.0).sum() == 1
    actions = rows_of(record.action_logs, "buy_and_hold")
    assert not np.any(actions["trades"].to_list()[1:])
    np.testing.assert_allclose([sum(weights) for weights in actions["target_weights"]], 1.0, atol=1e-12)


def test_costs_and_turnover_are_recorded_at_the_first_close_of_a_step():
    record = walked()
    curve = rows_of(record.equity_curves, "noted")
    paid = np.flatnonzero(curve["cost"].to_numpy())
    assert paid.tolist() == list(range(0, 60, 5))
    trades = np.array(rows_of(record.action_logs, "noted")["trades"].to_list())
    np.testing.assert_allclose(curve["turnover"].to_numpy()[paid], 0.5 * np.abs(trades).sum(axis=1), atol=1e-15)
    np.testing.assert_allclose(curve["cost"].to_numpy()[paid], 0.001 * np.abs(trades[:, :-1]).sum(axis=1), atol=1e-15)


def test_the_drawdown_counts_from_the_highest_close_and_the_start():
    curve = rows_of(walked().equity_curves, "noted")
    peak = np.maximum(1.0, np.maximum.accumulate(curve["equity"].to_numpy()))
    np.testing.assert_allclose(curve["drawdown"], 1.0 - curve["equity"].to_numpy() / peak, atol=1e-15)


def test_ineligible_names_are_never_held_and_delisted_ones_become_cash():
    record = walked()
    executed = np.array(rows_of(record.action_logs, "equal_weight")["executed_weights"].to_list())
    assert not executed[:, [INELIGIBLE, NEVER]].any()
    fills = np.arange(39, 99, 5) + 1
    assert (executed[(fills > LAST_PRICE) & (fills <= LAST_PRICE + MAX_GAP), DELISTED] > 0.0).all()
    assert not executed[fills > LAST_PRICE + MAX_GAP, DELISTED].any()


def test_a_weight_named_for_a_name_without_a_price_stays_cash():
    greedy = Noted(1, only_eligible=False)
    executed = np.array(
        walked(who=[PolicyAccount("x", "policy", (0, 0), (greedy, greedy))]).action_logs["executed_weights"].to_list()
    )
    assert not executed[:, NEVER].any()


@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
@pytest.mark.parametrize("t", [44, 59, 62, 74])
def test_records_up_to_a_session_are_bit_equal_whatever_comes_after_it(fill, t):
    spec, day = SPEC.model_copy(update={"fill": fill}), PANEL.sessions[t].item()
    known = walked(spec=spec)
    changed = walked(with_other_future(PANEL, t), spec)
    ended = {"equity_curves": "session", "action_logs": "session"}
    for name, column in ended.items():
        before, after = (getattr(record, name).filter(pl.col(column) <= day) for record in (known, changed))
        columns = [c for c in before.columns if c not in {"executed_weights", "trades"}]  # those of a fill after t
        assert before.select(columns).equals(after.select(columns))
    done = day if t in {44, 59, 74} else PANEL.sessions[t - 3].item()  # steps whose last session is up to t
    for name in ("trajectories", "reward_decomposition", "action_logs"):
        before, after = (getattr(record, name).filter(pl.col("session") < done) for record in (known, changed))
        assert len(before) > 0
        assert before.equals(after)


def test_records_of_a_market_cut_after_the_last_fold_are_the_same():
    known, shorter = walked(), walked(cut(PANEL, 99))
    for name in TABLES:
        assert getattr(known, name).equals(getattr(shorter, name))


def test_an_account_of_the_back_test_is_an_episode_of_the_environment():
    folds = [Fold(0, 0, 33, 40, 139)]
    spec = SPEC.model_copy(update={"episode_len": 20})
    simulation = PortfolioSimulation(PANEL, spec, 1, first=39, last=139)
    simulation.reset([0], [np.random.default_rng(0)])
    assert simulation.accounts.t.tolist() == [39]
    actions = np.random.default_rng(1).normal(0, 2, (20, 1, 7))
    steps = [simulation.step(action) for action in actions]
    assert steps[-1].truncated.all()

    class Scripted:
        def decide(self, panel, t, account):
            return Decision(target=steps[(t - 39) // 5].target[0])

    record = walked(spec=spec, folds=folds, who=[PolicyAccount("scripted", "policy", (0,), (Scripted(),))])
    assert record.trajectories["reward"].to_list() == [float(step.reward[0]) for step in steps]
    path = np.concatenate([step.account.path[0] for step in steps])
    assert record.equity_curves["equity"].to_list() == path.tolist()


def test_ruin_is_recorded_as_the_end_of_the_episode_and_stays_finite():
    returns = PANEL.close_returns.copy()
    returns[50:60] = -0.9
    crash = replace(PANEL, close_returns=returns, overnight_returns=None, tradable=np.ones_like(PANEL.tradable))
    record = walked(crash, who=policy_accounts()[2:3])
    steps = record.trajectories
    assert steps["terminated"].any()
    assert not (steps["terminated"] & steps["truncated"]).any()
    assert record.equity_curves["equity"].is_finite().all()


def test_trajectory_records_account_and_reward_terms_per_step():
    record = walked()
    steps, curve = rows_of(record.trajectories, "noted"), rows_of(record.equity_curves, "noted")
    assert steps.select("phase", "episode").unique().rows() == [("test", 0)]
    ends = curve.filter(pl.int_range(pl.len()) % 5 == 4)
    assert steps.select("equity", "drawdown").rows() == ends.select("equity", "drawdown").rows()
    assert steps["turnover"].to_list() == curve.filter(pl.col("cost") > 0.0)["turnover"].to_list()
    terms = rows_of(record.reward_decomposition, "noted").partition_by("step")
    for info, rows in zip(steps["info"], terms, strict=True):
        told = dict(rows.select("term", "contribution").iter_rows())
        assert json.loads(info) == {"reward_terms": told, "termination": None, "reasons": None}


def test_trajectory_records_why_weights_were_held_or_cut():
    class Held:
        def decide(self, panel, t, account):
            return Decision(target=None, reason="holds: no portfolio")

    cut = WeightPipeline(limits=(PositionCap(max_position=0.2), GrossExposure()))
    policies = (Held(), PipelinedPolicy(Noted(), cut, Thresholds(), 5), Noted())
    who = [PolicyAccount(str(i), "policy", (None,) * 2, (policy,) * 2) for i, policy in enumerate(policies)]
    rows = walked(who=who).trajectories
    reasons = [rows_of(rows, str(i))["info"].str.json_path_match("$.reasons") for i in range(3)]
    assert set(reasons[0]) == {"holds: no portfolio"}
    assert reasons[1].drop_nulls().str.contains(r"^position_cap: .* cut to 20\.0%").all()
    assert 0 < reasons[1].null_count() < len(reasons[1])
    assert reasons[2].null_count() == len(reasons[2])


def test_seed_of_a_step_is_that_of_its_folds_policy():
    who = [PolicyAccount("best", "ensemble", (4, 7), (Noted(4), Noted(7)))]
    seeds = walked(who=who).trajectories.select("fold", "seed").unique().sort("fold").rows()
    assert seeds == [(0, 4), (1, 7)]


def test_a_walk_hands_out_its_steps_and_ends_with_the_record():
    steps, record = walk(PANEL, SPEC, FOLDS, policy_accounts()), None
    sessions = []
    while record is None:
        try:
            sessions.append(next(steps).session)
        except StopIteration as end:
            record = end.value
    assert sessions == rows_of(record.trajectories, "noted")["session"].to_list()
    assert record.equity_curves.equals(walked().equity_curves)


@pytest.mark.parametrize(("last", "n_orders"), [(98, 0), (99, 1)])
def test_forward_walk_places_an_order_due_at_the_last_close(last, n_orders):
    steps = list(walk(PANEL, SPEC, [Fold(0, 0, 33, 40, last)], policy_accounts(1), "forward"))
    assert not any(step.is_last for step in steps)
    assert [step.fill_session for step in steps if step.outcome is None] == [None] * n_orders


@pytest.mark.parametrize("first_hold", [1, 3, 5])
def test_second_decision_comes_after_the_first_hold(first_hold):
    record = backtest(PANEL, SPEC, FOLDS, policy_accounts(), first_hold)
    decided = record.action_logs.filter(policy="noted")["session"].to_list()
    expected = [39, *range(39 + first_hold, 99, SPEC.rebal_freq)]
    assert decided == PANEL.sessions[expected].tolist()
    assert len(record.equity_curves.filter(policy="noted")) == 60
    assert equity_gaps(record.equity_curves).is_empty()
    assert (first_hold == SPEC.rebal_freq) == record.equity_curves.equals(walked().equity_curves)


def test_folds_that_leave_a_gap_are_refused():
    with pytest.raises(ValueError):
        walked(folds=[FOLDS[0], Fold(1, 20, 56, 65, 99)])


def test_levered_account_that_lost_all_is_cash_of_equity_zero_to_the_end():
    class AtFour:
        def decide(self, panel, t, account):
            return Decision(target=np.array([4.0 / 6.0] * 6 + [-3.0]))

    returns = np.zeros_like(PANEL.close_returns)
    returns[70] = -0.3
    crash = replace(PANEL, close_returns=returns, overnight_returns=None, tradable=np.ones_like(PANEL.tradable))
    spec = SPEC.model_copy(update={"action": LeveredSimplexAction(close_cap=4.0), "fill": "next_close"})
    record = walked(crash, spec=spec, who=[PolicyAccount("four", "policy", (0, 0), (AtFour(), AtFour()))])
    curve, steps = record.equity_curves, record.trajectories
    lost = curve.filter(pl.col("equity") == 0.0)
    assert 0 < len(lost) < len(curve)
    assert curve["equity"].min() == 0.0
    assert lost.select("cash", "gross", "turnover").unique().rows() == [(1.0, 0.0, 0.0)]
    assert equity_gaps(curve).is_empty()
    ended = steps.filter("terminated")
    assert set(ended["info"].str.json_path_match("$.termination")) == {"ruin"}
    assert set(steps.filter(~pl.col("terminated"))["info"].str.json_path_match("$.termination")) == {None}
