import pytest

from nvtrader_pipelines.research.recorded_session import read_session
from nvtrader_pipelines.research.session_progress import SessionProgress
from nvtrader_pipelines.research.session_tables import session_row
from tests.research.sessions import JournalBuilder, a_session, write_session


@pytest.mark.parametrize(
    ("outcome", "fields", "words"),
    [
        ("proposed", {"reason": "longer memory"}, ("makes proposal 1", "longer memory")),
        ("late", {"message": "after 6 s"}, ("optimizer", "late", "after 6 s")),
        ("not asked", {"message": "60 s lost"}, ("optimizer", "not asked", "60 s lost")),
    ],
)
def test_progress_says_who_proposes(home, outcome, fields, words):
    progress = SessionProgress(read_session(write_session(home, a_session(), JournalBuilder().lines)))
    (_, line) = JournalBuilder().answer(outcome, **fields).lines
    progress.add(line)
    sentence = progress.sentence(line)
    assert all(word in sentence for word in words)
    assert ("optimizer" in sentence, progress.n_trials) == (outcome != "proposed", 0)


def test_row_of_a_session_counts_the_work_of_trials_only():
    plain, asked = JournalBuilder().trial(0.1), JournalBuilder().answer("late", seconds=50.0).trial(0.1)
    assert session_row(a_session(), asked.lines) == session_row(a_session(), plain.lines)
