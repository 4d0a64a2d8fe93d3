import numpy as np
import pytest

from nvtrader_pipelines.evaluation.stress import BootstrappedWindow
from nvtrader_pipelines.evaluation.stress.scenario import PanelChoice, ScenarioUnavailableError, UnstressedMarket
from nvtrader_pipelines.market.calendar import NEW_YORK
from tests.evaluation.stress.markets import (
    BEFORE,
    FIRST,
    JUDGED_FROM,
    N_SESSIONS,
    WINDOW,
    judged,
    random_walks,
    unstressed_market,
    without,
)

SMALL = BootstrappedWindow(n_worlds=3, n_sessions=63, mean_block=5)


def drawn(stressed, prices):
    """Source session of each session of a sample, found by its cross-section of returns."""
    made = stressed.panel.close_returns[stressed.first : stressed.last + 1]
    past, *others = prices.returns()
    apart = np.nan_to_num(np.abs(made[:, None, :] - past[None, 1:]).max(axis=2), nan=np.inf)
    found = 1 + apart.argmin(axis=1)
    assert apart.min(axis=1).max() < 1e-14
    if stressed.panel.overnight_returns is not None:
        for name, returns in zip(("overnight_returns", "high_returns", "low_returns"), others, strict=True):
            own = getattr(stressed.panel, name)[stressed.first : stressed.last + 1]
            np.testing.assert_allclose(own, returns[found], atol=1e-14)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("opens", [True, False])
def test_resampling_draws_whole_sessions_outside_training(opens):
    prices = random_walks(opens=opens)
    samples = list(SMALL.apply(unstressed_market(prices), np.random.default_rng(1)))
    places = [drawn(stressed, prices) for stressed in samples]
    trained = range(253, 411)
    assert len(samples) == 3
    assert all(len(place) == 63 and not np.isin(place, trained).any() for place in places)
    assert len({place.tobytes() for place in places}) == 3
    assert all(not stressed.has_twin and stressed.note == "drawn from 541 sessions" for stressed in samples)
    steps = np.concatenate([np.diff(place) for place in places])
    assert np.mean(steps == 1) == pytest.approx(1 - 1 / SMALL.mean_block, abs=0.08)


def test_sample_starts_with_the_window():
    market = unstressed_market()
    stressed = next(iter(SMALL.apply(market, np.random.default_rng(1))))
    assert stressed.shock == stressed.first
    assert stressed.panel.sessions[stressed.first] == market.prices.sessions[FIRST]
    assert stressed.panel.sessions[-1] == market.prices.sessions[FIRST + 62]


def test_sample_volume_is_relative_to_usual_volume():
    prices = random_walks()
    market = unstressed_market(prices)
    stressed = next(iter(SMALL.apply(market, np.random.default_rng(1))))
    place = drawn(stressed, prices)[0]
    usual = prices.volumes[FIRST - 21 : FIRST].mean(axis=0)
    volume = usual * prices.volumes[place] / prices.volumes[place - 21 : place].mean(axis=0)
    logs = np.log1p(np.concatenate([prices.volumes[FIRST - 20 : FIRST], volume[None]]))
    score = (logs[-1] - logs.mean(axis=0)) / logs.std(axis=0, ddof=1)
    np.testing.assert_allclose(stressed.panel.feature("volume_z_21")[stressed.first], score, rtol=1e-9)


@pytest.mark.slow
def test_session_with_a_missing_bar_and_the_next_are_not_drawn():
    prices = without(random_walks(), 200, 201, np.array([True, False, False, False]))
    samples = SMALL.apply(unstressed_market(prices), np.random.default_rng(0))
    assert {stressed.note for stressed in samples} == {"drawn from 539 sessions; AAA lacks bars for 2 others"}


@pytest.mark.slow
def test_unchosen_names_do_not_restrict_the_pool():
    prices = without(random_walks(), 430, 500, np.array([False, False, False, True]))
    parts = (judged(prices),)
    market = UnstressedMarket.of(prices.rows(), parts, (WINDOW, BEFORE), PanelChoice(NEW_YORK, ("AAA", "BBB")))
    samples = list(BootstrappedWindow(n_sessions=WINDOW).apply(market, np.random.default_rng(0)))
    assert {stressed.note for stressed in samples} == {"drawn from 541 sessions"}
    assert all(stressed.panel.eligible[stressed.first :].all() for stressed in samples)


def test_name_without_bar_before_window_resumes_from_last_price():
    prices = without(random_walks(), FIRST - 2, FIRST, np.array([True, False, False, False]))
    stressed = next(iter(SMALL.apply(unstressed_market(prices), np.random.default_rng(0))))
    assert stressed.panel.tradable[stressed.first :].all()
    assert len(drawn(stressed, prices)) == SMALL.n_sessions


def test_delisted_name_has_no_bar_in_sample():
    prices = without(random_walks(), 80, N_SESSIONS, np.array([False, False, False, True]))
    market = unstressed_market(prices)
    for stressed in (market.unstressed(), next(iter(SMALL.apply(market, np.random.default_rng(0))))):
        assert stressed.panel.symbols == ("AAA", "BBB", "CCC", "DDD")
        assert not stressed.panel.tradable[stressed.first :, 3].any()


@pytest.mark.slow
def test_name_listed_in_window_has_no_bar_in_sample():
    prices = without(random_walks(), 0, FIRST + 2, np.array([False, False, False, True]))
    for stressed in SMALL.apply(unstressed_market(prices), np.random.default_rng(0)):
        assert stressed.note == "drawn from 541 sessions; without DDD, listed in the window"
        assert stressed.panel.symbols == ("AAA", "BBB", "CCC", "DDD")
        assert stressed.panel.tradable.any(axis=0).tolist() == [True, True, True, False]


@pytest.mark.slow
def test_sample_longer_than_window_or_pool_is_unavailable():
    prices = random_walks()
    with pytest.raises(ScenarioUnavailableError):
        BootstrappedWindow(n_sessions=101).apply(unstressed_market(prices), np.random.default_rng(0))
    all_trained = judged(prices, JUDGED_FROM + 220, trained=(0, JUDGED_FROM + 219))
    with pytest.raises(ScenarioUnavailableError):
        BootstrappedWindow(n_sessions=60 + 3).apply(
            unstressed_market(prices, judged(prices, trained=None), all_trained), None
        )


def test_error_names_the_symbol_that_shrinks_the_pool():
    prices = without(random_walks(), 0, FIRST - 20, np.array([True, False, False, False]))
    prices = without(prices, FIRST + 1, N_SESSIONS, np.array([True, False, False, False]))
    with pytest.raises(ScenarioUnavailableError, match="AAA"):
        SMALL.apply(unstressed_market(prices), np.random.default_rng(0))
