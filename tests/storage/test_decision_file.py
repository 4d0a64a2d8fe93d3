import multiprocessing

import pytest

from nvtrader_pipelines.preferences.decision_lines import compare_lines
from nvtrader_pipelines.preferences.decisions import DecisionRow
from nvtrader_pipelines.storage.decision_file import DecisionFile
from nvtrader_pipelines.storage.home import Home
from tests.preferences.sample_decisions import a_decision


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def append(home, *rows):
    return DecisionFile(home).append_missing(lambda written: [row for row in rows if row.decision_id not in written])


def compare(home, *rows):
    return compare_lines(DecisionFile(home).read_lines(), rows)


def test_rows_are_written_once_and_equal_the_audit(home):
    rows = [a_decision(n) for n in range(3)]
    assert (append(home, *rows[:2]), append(home, *rows)) == (2, 1)
    assert compare(home, *rows) == ({row.decision_id for row in rows}, [])


def test_home_without_the_file_has_no_decisions(home):
    assert compare(home) == (set(), [])
    assert append(home) == 0
    assert not DecisionFile(home).path.exists()


@pytest.mark.parametrize("cut", [1, 40, 300])
def test_torn_last_line_is_refused_and_its_decision_written_again(home, cut):
    rows = [a_decision(n) for n in range(3)]
    append(home, *rows[:2])
    path = DecisionFile(home).path
    path.write_bytes(path.read_bytes()[: -1 - cut])
    assert append(home, *rows) == 2
    intact, (refused,) = compare(home, *rows)
    assert intact == {row.decision_id for row in rows}
    assert (refused.line, "torn" in refused.reason) == (2, True)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b"", "torn or not JSON"),
        (b"[1]", "no JSON object"),
        (b'{"decision": "approved"}', "is null"),
        (a_decision(7).model_dump_json().replace('"schema_version":1', '"schema_version":2').encode(), "1, but is 2"),
        (a_decision(7).model_dump_json().replace('"approved"', '"liked"').encode(), "decision"),
        (a_decision(7).model_dump_json().replace('"approved"', '"\xff"').encode("latin-1"), "not JSON"),
        (a_decision(7).model_dump_json().replace("0.5", "NaN", 1).encode(), "weights.0"),
        (a_decision(0).model_dump_json().encode(), "in an earlier line"),
        (a_decision(7, outcome_known=True).model_dump_json().encode(), "outcome_known must be False"),
        (a_decision(7, reason="luck").model_dump_json().encode(), "but is luck"),
        (a_decision(7, chosen_weights=(0.0, 0.0, 1.0)).model_dump_json().encode(), "chosen_weights must be (0.5"),
        (a_decision(8).model_dump_json().encode(), "has no decision 0000000000000008"),
    ],
)
def test_line_that_is_no_decision_is_refused_and_the_others_stay(home, line, named):
    append(home, a_decision(0))
    with DecisionFile(home).path.open("ab") as file:
        file.write(line + b"\n")
    append(home, a_decision(1))
    intact, (refused,) = compare(home, *map(a_decision, (0, 1, 7)))
    assert intact == {a_decision(n).decision_id for n in (0, 1)}
    assert refused.line == 2
    assert named in refused.reason


def write_many(root, first):
    for n in range(first, first + 20):
        append(Home(root), a_decision(n))


@pytest.mark.slow
def test_two_processes_lose_nothing(home):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write_many, args=(home.root, first)) for first in (0, 10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    rows = [a_decision(n) for n in range(30)]
    assert compare(home, *rows) == ({row.decision_id for row in rows}, [])


def test_row_needs_a_weight_per_symbol():
    document = a_decision(0).model_dump(mode="json")
    with pytest.raises(ValueError):
        DecisionRow.model_validate({**document, "proposed_weights": [0.5, 0.5]})
