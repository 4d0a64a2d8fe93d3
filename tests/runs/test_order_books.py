import numpy as np
import pytest

from nvtrader_pipelines.runs.order_books import land_book, read_book
from nvtrader_pipelines.runs.world_documents import world_document
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ORDER_BOOKS
from nvtrader_pipelines.storage.views.queries import query_views
from nvtrader_pipelines.worlds.book_events import book_history
from nvtrader_pipelines.worlds.books import SECOND, GeneratedBooks
from tests.homes import nvtrader
from tests.runs.small_worlds import run_steps, write_worlds

BOOKS = GeneratedBooks(day_seconds=90)
OWN = {
    "name": "own",
    "world": {"kind": "tradesim_hft", "books": {"kind": "landed", "name": "own"}, "episode_len": 20},
    "agent": {"kind": "hft_ddqn", "total_timesteps": 400, "learning_starts": 100, "batch_size": 32},
    "train": ["2000-01-03", "2000-01-03"],
    "test": ["2000-01-05", "2000-01-05"],
}


def event_files(folder, **changed):
    """Files of two days of events in folders of their own; keyword arguments set a field of row 700 of the second."""
    paths = [folder / "z" / "day_0.npz", folder / "a" / "day_1.npz"]
    for day, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        events = BOOKS.events(day)
        for field, value in changed.items() if day else ():
            events[field][700] = value
        np.savez_compressed(path, data=events)
    return paths[::-1]


@pytest.fixture
def store(tmp_path):
    return Store(Home(tmp_path / "home"))


def rows(store):
    return store.tables.read(ORDER_BOOKS)


def test_landed_book_is_the_history_of_its_files_in_the_order_of_their_names(store, tmp_path):
    document = land_book(store, event_files(tmp_path), "own", 1.0)
    events = np.concatenate([BOOKS.events(0), BOOKS.events(1)])
    expected, read = book_history("own", events, SECOND), read_book(store, "own")
    assert read.digest == expected.digest
    assert (document.n_events, document.n_times, document.n_gaps) == (len(events), len(expected.sessions), 1)
    assert document.average_spread == pytest.approx((expected.asks[:, 0] - expected.bids[:, 0]).mean())
    assert read.snapshot_ids == {"silver.order_books": store.tables.snapshot_id(ORDER_BOOKS)}


@pytest.mark.slow
def test_book_landed_again_is_replaced_and_others_stay(store, tmp_path):
    files = event_files(tmp_path)
    for book, step in (("own", 1.0), ("other", 1.0), ("own", 0.5)):
        land_book(store, files, book, step)
    assert dict(rows(store)["book"].value_counts().iter_rows()) == {"own": 2 * 181, "other": 182}
    assert set(rows(store).filter(book="own")["step_seconds"]) == {0.5}


def test_step_of_parts_of_a_microsecond_is_rounded(store, tmp_path):
    landed = land_book(store, event_files(tmp_path), "own", 1 / 3)
    history = read_book(store, "own")
    assert (landed.step_seconds, landed.n_gaps) == (0.333333, 1)
    assert len(history.stretches((0, len(history.sessions) - 1))) == 2


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"qty": -1.0}, "day_1.npz: row 700: qty"),
        ({"local_ts": 0, "exch_ts": 0}, "day_1.npz: row 700: local_ts"),
        ({"px": 1e6, "ev": 3758096385}, "day_1.npz: row 7[0-9]{2}: .*crossed"),
    ],
)
def test_file_with_a_bad_event_lands_nothing(store, tmp_path, changed, named):
    land_book(store, event_files(tmp_path / "good"), "own", 1.0)
    before = rows(store)
    with pytest.raises(StorageError, match=named):
        land_book(store, event_files(tmp_path / "bad", **changed), "own", 1.0)
    assert rows(store).equals(before)


def test_files_that_cannot_be_read_are_refused(store, tmp_path):
    (tmp_path / "prices.csv").write_text("a,b\n")
    for name in ("prices.csv", "missing.npz"):
        with pytest.raises(StorageError, match=name):
            land_book(store, [tmp_path / name], "own", 1.0)
    assert rows(store).is_empty()


def test_book_that_is_not_landed_is_named_with_those_that_are(store, tmp_path):
    with pytest.raises(NotFoundError, match="none is landed"):
        read_book(store, "own")
    land_book(store, event_files(tmp_path), "own", 1.0)
    with pytest.raises(NotFoundError, match="own"):
        read_book(store, "owm")


@pytest.mark.slow
def test_experiment_trains_and_tests_on_the_days_of_a_landed_book(store, tmp_path):
    land_book(store, event_files(tmp_path), "own", 1.0)
    write_worlds(store.home, own=OWN)
    run_steps(store, "own")
    document = world_document(store, "own")
    assert (document.run.status, document.run.source, document.results[0].n_episodes) == ("done", "own", 5)
    assert document.run.snapshot_ids == {"silver.order_books": store.tables.snapshot_id(ORDER_BOOKS)}
    assert str(document.run.window_first) == "2000-01-05"
    run_id = document.run.run_id
    land_book(store, event_files(tmp_path), "other", 1.0)  # another book moves nothing
    run_steps(store, "own")
    assert world_document(store, "own").run.run_id == run_id


@pytest.mark.slow
def test_landing_command_shows_the_book_for_sql(store, tmp_path, fast_nvtrader):
    store.home.experiments.mkdir(parents=True)
    files = [str(file) for file in event_files(tmp_path)]
    landed = nvtrader(store.home, "worlds", "land", *files, "--book", "own", "--json", command=fast_nvtrader)
    assert landed.returncode == 0
    assert query_views(store, "SELECT count(*) AS n FROM silver.order_books WHERE bids[1] < asks[1]")["n"][0] == 182
