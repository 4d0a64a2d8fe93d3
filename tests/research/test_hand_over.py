import polars as pl
import pytest

from nvtrader_pipelines.policies.archive import read_card
from nvtrader_pipelines.research import hand_over as module
from nvtrader_pipelines.research.hand_over import record_retrained
from nvtrader_pipelines.research.recorded_session import handed_on, read_session
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.specs import read_experiment
from nvtrader_pipelines.storage.store import Store
from tests.homes import copy_home
from tests.research.search_homes import (
    GRID,
    N_SESSIONS,
    bars_of,
    land,
    market,
    new_session,
    run,
    run_handed_on,
    trials_of,
)

pytestmark = pytest.mark.slow


def events(store):
    """Events of hand-overs, in the order of the audit."""
    return [event for event in store.audit.events() if event.kind in ("NewBest", "PolicyRetrained")]


def test_runs_of_a_winner_have_the_judged_files_also_on_a_larger_market(looked):
    home, folder = looked
    store = Store(home)
    closed = run(home, folder)[-1]
    path = handed_on(home, folder.session_id)
    assert path.stem == f"{folder.session_id}-winner"
    spec = read_experiment(path)
    (judged,) = (home.research_policies / folder.session_id).glob("*.zip")
    first = run_handed_on(store, spec)
    bars = bars_of(market(drift=0.004, n_sessions=N_SESSIONS + 1))
    land(store, pl.concat([bars, bars.filter(symbol=bars["symbol"][0]).with_columns(symbol=pl.lit("ZZZ"))]))
    second = run_handed_on(store, spec)
    assert first.run_id != second.run_id
    assert store.policies.read_run(first) == {(0, 0): judged.read_bytes()}
    (longer,) = store.policies.read_run(second).values()
    cards = [read_card(content).model_dump(exclude={"panel_digest"}) for content in (judged.read_bytes(), longer)]
    assert cards[0] == cards[1]
    new_best, *retrained = events(store)
    assert (new_best.kind, new_best.detail["rule"], new_best.detail["trial"]) == ("NewBest", "winner", closed.trial)
    assert [event.run_id for event in retrained] == [first.run_id, second.run_id]
    assert retrained[0].detail["policies"] == first.policies
    record_retrained(store, first)
    assert len(events(store)) == 3  # once per run


@pytest.mark.parametrize(
    "killed_at",
    [
        pytest.param((JsonlAudit, "append"), id="event"),
        pytest.param((module, "experiment_file"), id="file", marks=pytest.mark.nightly),
    ],
)
def test_hand_over_that_was_killed_is_completed_and_then_left_alone(killed_at, looked, monkeypatch):
    home, folder = looked
    store = Store(home)
    with monkeypatch.context() as killing:
        killing.setattr(*killed_at, lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(home, folder)
    assert handed_on(home, folder.session_id) is None
    revised = market(drift=0.004)
    revised[3, 0] += 0.01  # before the seal, where an open session cannot resume
    land(store, bars_of(revised))
    assert run(home, folder) == []  # the session is closed
    path = handed_on(home, folder.session_id)
    run_handed_on(store, read_experiment(path))
    path.unlink()
    assert run(home, folder) == []
    assert not path.exists()
    assert [event.kind for event in events(store)] == ["NewBest", "PolicyRetrained"]


@pytest.fixture(scope="module")
def best_found(searched_homes, tmp_path_factory):
    """Home whose gate hands on the best Sharpe ratio, and the id of the session that found it."""
    home = copy_home(searched_homes["noise"], tmp_path_factory.mktemp("best") / "home")
    home.promotion_file.write_text("rule: best_sharpe\n")
    folder = new_session(home, seed=1, **GRID)
    assert run(home, folder)[-1].outcome == "nothing found"
    return home, folder.session_id


@pytest.fixture
def best(best_found, tmp_path):
    """Copy of that home, and the folder of its session."""
    home = copy_home(best_found[0], tmp_path / "best")
    return home, SessionFolder.of(home, best_found[1])


def test_best_sharpe_alone_is_not_handed_on_by_the_rule_of_lower_bounds(noise_home):
    noise_home.promotion_file.write_text("rule: lower_bound\n")
    folder = new_session(noise_home, seed=1, **GRID)
    assert run(noise_home, folder)[-1].outcome == "nothing found"
    assert handed_on(noise_home, folder.session_id) is None


def test_best_sharpe_alone_is_handed_on_by_its_rule_only_if_new(best):
    home, first = best
    second = new_session(home, seed=2, **GRID)
    assert run(home, second)[-1].outcome == "nothing found"
    path, store = handed_on(home, first.session_id), Store(home)
    assert handed_on(home, second.session_id) is None  # it has the same trials
    (new_best,) = events(store)
    assert new_best.detail["sharpe"] == max(line.sharpe for line in trials_of(first, "judged"))
    sealed = run_handed_on(store, read_experiment(path))
    assert [event.kind for event in events(store)] == ["NewBest", "PolicyRetrained"]
    folder = home.research_policies / first.session_id
    assert read_experiment(folder / "experiment.yaml").spec_hash == sealed.spec_hash
    assert [file.read_bytes() for file in folder.glob("*.zip")] == [*store.policies.read_run(sealed).values()]
    assert read_experiment(path).report_from == read_session(first).session.spec.sealed_from


def test_unreadable_gate_is_refused_before_the_search(noise_home):
    noise_home.promotion_file.write_text("rule: nonsense\n")
    folder = new_session(noise_home)
    with pytest.raises(StorageError):
        run(noise_home, folder)
    assert read_session(folder).lines == ()


@pytest.mark.parametrize("drift", [0.0, 0.001], ids=["lower", "higher by an equal configuration"])
def test_best_sharpe_hands_on_what_is_new_and_higher_whatever_the_sealed_window(drift, best):
    home, _ = best
    store = Store(home)
    (first,) = events(store)
    land(store, bars_of(market(n_sessions=N_SESSIONS + 6) + drift))
    second = new_session(home, seed=6, **GRID)
    run(home, second)
    best = max(trials_of(second, "judged"), key=lambda line: line.sharpe)
    assert read_session(second).session.spec.sealed_from.isoformat() > first.detail["sealed_from"]
    is_higher, is_equal = best.sharpe > first.detail["sharpe"], best.spec_hash == first.detail["configuration"]
    assert (is_higher, is_equal) == (drift > 0.0, drift > 0.0)
    assert events(store) == [first]
