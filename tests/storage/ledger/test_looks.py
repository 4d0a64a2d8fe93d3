from dataclasses import replace
from datetime import date

from nvtrader_pipelines.storage.ledger.ledger import SealedWindow

WINDOW = SealedWindow("sample", frozenset({"A", "B"}), date(2010, 1, 4), date(2022, 12, 28))


def test_looks_are_numbered_and_a_session_looks_once(ledger):
    assert [ledger.open_look(WINDOW, session, "hash") for session in ("one", "two", "one")] == [1, 2, 1]
    assert ledger.n_looks(WINDOW) == 2


def test_looks_count_where_names_and_sessions_overlap(ledger):
    ledger.open_look(WINDOW, "one", "hash")
    assert ledger.n_looks(replace(WINDOW, first=date(2022, 12, 28), last=date(2024, 1, 2))) == 1
    assert ledger.n_looks(replace(WINDOW, symbols=frozenset({"B", "C"}))) == 1
    others = [{"first": date(2022, 12, 29), "last": date(2024, 1, 2)}, {"symbols": frozenset({"C"})}, {"source": "x"}]
    assert [ledger.n_looks(replace(WINDOW, **other)) for other in others] == [0, 0, 0]
