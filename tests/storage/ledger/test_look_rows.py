import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date

from nvtrader_pipelines.storage.ledger.look_rows import SealedWindow

WINDOW = SealedWindow("sample", frozenset({"A", "B"}), date(2010, 1, 4), date(2022, 12, 28))


def test_looks_are_numbered_and_a_session_looks_once(ledger):
    assert [ledger.open_look(WINDOW, session, "hash", len) for session in ("one", "two", "one")] == [1, 2, 1]
    assert [ledger.find_look(session) for session in ("one", "two", "three")] == [1, 2, None]
    assert ledger.sealed_windows() == [WINDOW, WINDOW]


def test_window_of_a_resumed_look_covers_the_grown_market(ledger):
    grown = replace(WINDOW, last=date(2024, 1, 2))
    for window in (WINDOW, grown, WINDOW):
        assert ledger.open_look(window, "one", "hash", len) == 1
    assert ledger.sealed_windows() == [grown]


def test_looks_opened_at_once_have_different_numbers(ledger):
    def count_slowly(windows):
        time.sleep(0.05)
        return len(windows)

    with ThreadPoolExecutor(3) as pool:
        looks = pool.map(lambda session: ledger.open_look(WINDOW, session, "hash", count_slowly), "abc")
        assert sorted(looks) == [1, 2, 3]
