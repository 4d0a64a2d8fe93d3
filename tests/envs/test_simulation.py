from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.rewards import (
    BenchmarkRelative,
    CvarExcess,
    DifferentialDownside,
    DifferentialSharpe,
    DrawdownPenalty,
    ExponentialUtility,
    ImplementationShortfall,
    LogGrowth,
    RunningInventory,
    TurnoverPenalty,
)
from nvtrader_pipelines.envs.simulation import PortfolioSimulation, fit_scaler
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.envs.terminations import (
    DrawdownTermination,
    MarginCallTermination,
    RiskBreachTermination,
    StopProperly,
)
from nvtrader_pipelines.portfolio.anchors import EqualWeightAnchor
from nvtrader_pipelines.portfolio.costs import SquareRootImpact, VolatilitySpread
from tests.markets import with_values
from tests.panels import eventful_panel, with_other_future

SPEC = EnvSpec(lookback=5, episode_len=20, rebal_freq=3)
RICH = EnvSpec(
    lookback=5,
    episode_len=20,
    rebal_freq=3,
    costs=(VolatilitySpread(), SquareRootImpact()),
    rewards=(
        LogGrowth(),
        BenchmarkRelative(),
        ExponentialUtility(),
        DifferentialSharpe(),
        DifferentialDownside(),
        CvarExcess(),
        DrawdownPenalty(),
        TurnoverPenalty(),
        ImplementationShortfall(),
        RunningInventory(),
    ),
    terminations=(DrawdownTermination(limit=0.1), RiskBreachTermination(max_weight=0.9, max_cvar=0.02)),
    stop_properly=StopProperly(),
)


def begin_episodes(simulation, seed=0):
    n = len(simulation.steps)
    simulation.reset(range(n), [np.random.default_rng(seed + i) for i in range(n)])
    return simulation


def walk(panel, spec=SPEC, n=4, n_steps=20, **window):
    simulation = begin_episodes(PortfolioSimulation(panel, spec, n, **window))
    actions = np.random.default_rng(5).normal(0, 2, (n_steps, n, len(panel.symbols) + 1))
    return simulation, [simulation.step(action) for action in actions]


def test_episode_is_truncated_after_its_decisions():
    _, steps = walk(eventful_panel())
    assert [bool(step.truncated.any()) for step in steps] == [False] * 19 + [True]
    assert steps[-1].truncated.all()
    assert not any(step.terminated.any() for step in steps)


def test_episode_is_truncated_without_room_for_another_step():
    simulation, steps = walk(eventful_panel(), n_steps=7, first=10, last=33)
    assert simulation.accounts.t.tolist() == [31] * 4
    assert [bool(step.truncated.all()) for step in steps] == [False] * 6 + [True]


def test_episodes_start_with_room_for_a_whole_one():
    simulation = PortfolioSimulation(eventful_panel(), SPEC, 2000, first=30, last=100)
    generator = np.random.default_rng(0)
    simulation.reset(range(2000), [generator] * 2000)
    assert set(simulation.accounts.t.tolist()) == set(range(30, 41))


def test_starts_of_one_window_are_uniform():
    simulation = PortfolioSimulation(eventful_panel(), SPEC, 50, first=30, last=100)
    simulation.reset(range(50), [np.random.default_rng(seed) for seed in range(50)])
    drawn = [int(np.random.default_rng(seed).integers(30, 41)) for seed in range(50)]
    assert simulation.accounts.t.tolist() == drawn


def test_starts_of_stretches_leave_room_or_lie_in_the_first_half():
    whole = SPEC.rebal_freq * SPEC.episode_len
    simulation = PortfolioSimulation(
        eventful_panel(), SPEC, 4000, first=0, last=159, stretches=((2, 66), (70, 90), (93, 159))
    )
    generator = np.random.default_rng(0)
    simulation.reset(range(4000), [generator] * 4000)
    expected = {*range(2, 66 - whole + 1), *range(70, 81), *range(93, 159 - whole + 1)}
    assert set(simulation.accounts.t.tolist()) == expected


def test_episodes_stay_within_their_stretch():
    stretches = ((2, 66), (93, 159))
    simulation = begin_episodes(PortfolioSimulation(eventful_panel(), SPEC, 64, first=2, last=159, stretches=stretches))
    starts, ended = simulation.accounts.t.copy(), np.zeros(64, dtype=bool)
    for _ in range(SPEC.episode_len):
        assert not ended.any()
        step = simulation.step(np.zeros((64, 7)))
        ended |= step.truncated
    own = [next(stretch for stretch in stretches if stretch[0] <= start <= stretch[1]) for start in starts]
    assert ended.all()
    assert all(t <= last for t, (_, last) in zip(simulation.accounts.t, own, strict=True))


def test_short_stretches_are_all_started():
    stretches = ((5, 20), (30, 54), (60, 62), (70, 73))
    simulation = PortfolioSimulation(eventful_panel(), SPEC, 4000, first=5, last=73, stretches=stretches)
    generator = np.random.default_rng(0)
    simulation.reset(range(4000), [generator] * 4000)
    assert set(simulation.accounts.t.tolist()) == {*range(5, 14), *range(30, 43), 70}


def test_episodes_of_one_short_window_start_with_it():
    simulation = begin_episodes(PortfolioSimulation(eventful_panel(), SPEC, 8, first=30, last=54))
    assert simulation.accounts.t.tolist() == [30] * 8
    steps = [simulation.step(np.zeros((8, 7))) for _ in range(8)]
    assert [bool(step.truncated.all()) for step in steps] == [False] * 7 + [True]
    assert simulation.accounts.t.tolist() == [54] * 8


def test_rewind_resets_only_portfolios_without_room():
    stretches = ((2, 66), (150, 159))
    simulation = PortfolioSimulation(eventful_panel(), SPEC, 64, first=2, last=159, stretches=stretches)
    begin_episodes(simulation)
    sessions = set(range(2, 67)) | set(range(150, 160))
    assert {start >= 150 for start in simulation.accounts.t.tolist()} == {True, False}
    for _ in range(60):  # far more steps than the short stretch holds
        before = simulation.accounts.t.copy()
        stuck = [t + SPEC.rebal_freq > (66 if t <= 66 else 159) for t in before.tolist()]
        assert simulation.rewind() == any(stuck)
        assert simulation.accounts.t.tolist() == [
            2 if bad else t for bad, t in zip(stuck, before.tolist(), strict=True)
        ]
        simulation.step(np.zeros((64, 7)))
        assert sessions.issuperset(simulation.accounts.t.tolist())


def test_scaler_does_not_depend_on_sessions_between_stretches():
    panel, stretches = eventful_panel(), ((2, 66), (93, 159))
    between = panel
    for name in ("close_returns", "features"):
        between = with_values(between, name, np.s_[67:93], 3.0 * getattr(panel, name)[67:93] + 1.0)
    fitted = [fit_scaler(market, SPEC.observation, stretches) for market in (panel, between)]
    assert fitted[0] == fitted[1]
    assert fitted[0] != fit_scaler(panel, SPEC.observation, [(2, 159)])
    assert fit_scaler(panel, SPEC.observation, [(2, 66)]) == SPEC.observation.fit(panel, 2, 66)


def test_stretches_shorter_than_one_step_are_refused():
    with pytest.raises(ValueError):
        PortfolioSimulation(eventful_panel(), SPEC, 1, first=5, last=11, stretches=((5, 7), (9, 11)))


def test_ruined_account_is_terminated_and_not_truncated():
    panel = eventful_panel()
    crash = replace(panel, close_returns=np.full_like(panel.close_returns, -0.9), overnight_returns=None)
    invested = ResidualAction(anchor=EqualWeightAnchor())
    spec = EnvSpec(episode_len=20, rebal_freq=10, rewards=(LogGrowth(),), action=invested)
    step = begin_episodes(PortfolioSimulation(crash, spec, 1)).step(np.zeros((1, 7)))
    assert step.terminated.tolist() == [True]
    assert step.truncated.tolist() == [False]
    assert np.isfinite(step.reward).all()


@pytest.mark.parametrize(("first", "last"), [(-1, 50), (0, 160), (50, 52), (60, 50)])
def test_window_shorter_than_one_step_is_refused(first, last):
    with pytest.raises(ValueError):
        PortfolioSimulation(eventful_panel(), SPEC, 1, first=first, last=last)


def test_training_does_not_use_sessions_after_the_window():
    panel = eventful_panel()
    window = {"first": 12, "last": 90}
    _, steps = walk(panel, **window)
    _, others = walk(with_other_future(panel, 90), **window)
    for step, other in zip(steps, others, strict=True):
        np.testing.assert_array_equal(step.observation, other.observation)
        np.testing.assert_array_equal(step.reward, other.reward)


def test_spaces_have_the_sizes_of_observations_and_actions():
    simulation = begin_episodes(PortfolioSimulation(eventful_panel(), SPEC, 2))
    assert observation_space(simulation).contains(simulation.observe()[0])
    assert action_space(simulation).shape == (7,)
    assert action_space(simulation).high.tolist() == [5.0] * 7


# --- terminations ------------------------------------------------------------------------------------------------


def falling_simulation(**fields):
    """Begin an episode that holds falling names, with one decision per session."""
    panel = eventful_panel()
    falls = replace(panel, close_returns=np.full_like(panel.close_returns, -0.05), overnight_returns=None)
    action = ResidualAction(anchor=EqualWeightAnchor(), exposure_tilt=0.0)
    spec = EnvSpec(episode_len=20, rebal_freq=1, turnover_cost_bps=0.0, action=action, vol_penalty=0.0, **fields)
    return begin_episodes(PortfolioSimulation(falls, spec, 1, first=100))


def play_episode(simulation):
    steps = []
    while not steps or not (steps[-1].truncated | steps[-1].terminated).all():
        steps.append(simulation.step(np.zeros((1, 7))))
    return steps


@pytest.mark.parametrize("form", ["sign_safe", "literal"])
def test_early_stop_shapes_the_total_reward_at_the_last_step(form):
    rules = (DrawdownTermination(limit=0.2),)
    shaping = StopProperly(coefficient=0.25, form=form)
    fields = {"rewards": (LogGrowth(),), "terminations": rules}
    shaped = play_episode(falling_simulation(**fields, stop_properly=shaping))
    plain = play_episode(falling_simulation(**fields))
    assert len(shaped) == len(plain) == 6  # the first order fills at a close; 0.95^5 is the first value below 0.8
    total = sum(step.reward[0] for step in plain)
    wanted = 0.25 * total if form == "literal" else total - 0.75 * abs(total)
    assert sum(step.reward[0] for step in shaped) == pytest.approx(wanted, rel=1e-12)
    assert total < 0.0
    for step, other in zip(shaped, plain, strict=True):
        np.testing.assert_array_equal(step.account.reward_terms["log_growth"], other.reward)
    assert [step.account.reward_terms["stop_properly"][0] for step in shaped[:-1]] == [0.0] * 5


@pytest.mark.parametrize("form", ["sign_safe", "literal"])
def test_shaping_acts_only_at_early_stops_and_terms_sum_to_reward(form):
    spec = RICH.model_copy(update={"stop_properly": StopProperly(form=form)})
    simulation = begin_episodes(PortfolioSimulation(eventful_panel(), spec, 16))
    generators, so_far, collected = [np.random.default_rng(i) for i in range(16)], np.zeros(16), 0
    for actions in np.random.default_rng(5).normal(0, 4, (60, 16, 7)):
        step = simulation.step(actions)
        terms = step.account.reward_terms
        np.testing.assert_array_equal(step.reward, sum(terms.values(), start=np.zeros(16)))
        so_far += sum((values for kind, values in terms.items() if kind != "stop_properly"), start=np.zeros(16))
        stopped = np.logical_or.reduce(list(step.triggered.values()))
        np.testing.assert_array_equal(terms["stop_properly"] != 0.0, stopped & (so_far != 0.0))
        expected = StopProperly(form=form).shape_rewards(so_far[stopped])
        np.testing.assert_allclose(so_far[stopped] + terms["stop_properly"][stopped], expected, atol=1e-9)
        worse = terms["stop_properly"] <= 0.0
        assert worse.all() if form == "sign_safe" else (worse == (~stopped | (so_far >= 0.0))).all()
        collected += int(stopped.sum())
        done = np.flatnonzero(step.truncated | step.terminated)
        simulation.reset(done.tolist(), [generators[i] for i in done])
        so_far[done] = 0.0
    assert collected > 20


def test_end_of_the_episode_length_is_not_shaped():
    simulation = falling_simulation(
        rewards=(LogGrowth(),), terminations=(DrawdownTermination(limit=0.9),), stop_properly=StopProperly()
    )
    steps = play_episode(simulation)
    assert len(steps) == 20
    assert steps[-1].truncated.tolist() == [True]
    assert [step.account.reward_terms["stop_properly"][0] for step in steps] == [0.0] * 20
    assert not any(step.triggered["drawdown"][0] for step in steps)


def test_termination_takes_precedence_over_truncation():
    rules = (DrawdownTermination(limit=0.2), MarginCallTermination(maintenance=0.8, truncates=False))
    last = play_episode(falling_simulation(rewards=(LogGrowth(),), terminations=rules, stop_properly=StopProperly()))[
        -1
    ]
    assert [last.triggered[kind].tolist() for kind in ("drawdown", "margin_call")] == [[True], [True]]
    assert (last.terminated.tolist(), last.truncated.tolist()) == ([True], [False])
    assert last.account.reward_terms["stop_properly"].tolist() == [0.0]


def test_nothing_is_triggered_without_terminations():
    _, steps = walk(eventful_panel(), n_steps=3)
    assert [step.triggered for step in steps] == [{}, {}, {}]


def test_reward_of_many_accounts_equals_single_ones():
    starts, actions = [10, 20, 30, 40, 50, 60, 70], np.random.default_rng(5).normal(0, 3, (20, 7, 7))
    together, alone = PortfolioSimulation(eventful_panel(), RICH, 7), PortfolioSimulation(eventful_panel(), RICH, 1)
    together.accounts.open(list(range(7)), starts)
    rewards = np.array([together.step(action).reward for action in actions])
    for i, start in enumerate(starts):
        alone.reset([0], [np.random.default_rng(0)])
        alone.accounts.open([0], [start])
        assert rewards[:, i].tolist() == [alone.step(action[[i]]).reward[0] for action in actions]


# --- states ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [SPEC, RICH], ids=["default", "rich"])
def test_restored_simulation_continues_bit_for_bit(spec):
    panel, actions = eventful_panel(), np.random.default_rng(5).normal(0, 3, (30, 6, 7))
    simulation, restored = (begin_episodes(PortfolioSimulation(panel, spec, 6), seed) for seed in (0, 50))

    def play(simulation, actions):
        parts = []
        for action in actions:
            step = simulation.step(action)
            parts += [step.observation, step.reward, step.truncated, *step.account.reward_terms.values()]
            done = np.flatnonzero(step.truncated | step.terminated)
            simulation.reset(done.tolist(), [np.random.default_rng(i) for i in done])
        return b"".join(part.tobytes() for part in parts)

    play(simulation, actions[:17])
    state = simulation.state()
    restored.restore(state)
    before = {name: array.copy() for name, array in state.items()}
    assert play(restored, actions[17:]) == play(simulation, actions[17:])
    for name, array in state.items():
        np.testing.assert_array_equal(array, before[name])


def test_state_has_flat_names_including_reward_terms():
    names = set(PortfolioSimulation(eventful_panel(), RICH, 2).state())
    assert names == {
        *(f"accounts.{name}" for name in ("t", "weights", "equity", "peak", "recent_returns")),
        *(
            f"accounts.rewards.differential_{kind}.{moment}"
            for kind in ("sharpe", "downside")
            for moment in ("mean", "square")
        ),
        "steps",
        "episode_rewards",
    }


def test_state_of_another_simulation_is_refused():
    simulation = PortfolioSimulation(eventful_panel(), SPEC, 2)
    with pytest.raises(ValueError):
        simulation.restore(PortfolioSimulation(eventful_panel(), RICH, 2).state())
    with pytest.raises(ValueError):
        simulation.restore(PortfolioSimulation(eventful_panel(), SPEC, 3).state())
