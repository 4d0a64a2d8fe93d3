import re

import pytest

from nvtrader_pipelines.research.model_answers import ProposalAnswer
from nvtrader_pipelines.research.sentences import format_progress
from nvtrader_pipelines.research.session_picture import search_points
from nvtrader_pipelines.research.session_report import session_report, write_report
from nvtrader_pipelines.storage.research_files import SessionFolder
from tests.research.sessions import JournalBuilder, a_journal, a_session


def rows(report, head):
    """Cells of the table row that begins with a head."""
    line = next(line for line in report.splitlines() if line.startswith(f"| {head} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def headings(report):
    return re.findall(r"^## (.*)$", report, re.MULTILINE)


def test_report_of_a_closed_session_begins_with_its_verdict():
    builder = a_journal().look(0.2, 0.3)
    _, goal, sentence, *_ = session_report(a_session(), builder.lines).split("\n\n")
    assert goal == "Goal: A higher Sharpe ratio, net of costs"
    assert sentence == f"**{builder.lines[-1].sentence}**"


@pytest.mark.parametrize(("is_running", "words"), [(True, "runs"), (False, "is stopped")])
def test_report_without_a_verdict_is_an_interim_one(is_running, words):
    builder = a_journal(12)
    report = session_report(a_session(), builder.lines, is_running=is_running)
    assert f"**Interim report: the session {words} after 12 of 30 trials. {format_progress(builder.state)}**" in report


def test_report_ranks_trials_by_t_and_shows_changed_knobs_only():
    builder = JournalBuilder().trial(0.1, gamma=0.95).trial(-0.1, lookback=7).trial(0.15, error=0.2, lookback=40)
    report = session_report(a_session(), builder.lines)
    assert rows(report, "") == ["base", "trial 1", "trial 3", "trial 2"]
    assert rows(report, "Sharpe ratio") == [".70", ".80", ".85", ".60"]
    assert rows(report, "t") == ["", "1.64", ".75", "\N{MINUS SIGN}1.64"]
    assert rows(report, "lookback") == ["20", "=", "40", "7"]
    assert "| episode_len |" not in report


def test_report_shows_reruns_of_kept_and_lost_trials():
    report = session_report(a_session(), a_journal().lines)
    kept, near_misses = (
        report.partition(f"## {head}")[2].partition("##")[0] for head in ("What was kept", "Near misses")
    )
    assert re.findall(r"Trial (\d+)", kept) == ["14", "22", "23"]
    assert re.findall(r"Trial (\d+)", near_misses) == ["20"]


def test_report_says_why_a_rerun_has_no_result():
    lines = JournalBuilder().trial(0.3).rerun("t1", None, None).lines
    report = session_report(a_session(), lines)
    assert "- Trial 1: seed 6 has no result. Not above after reruns." in report
    assert [point.sharpe for point in search_points(lines)] == [None]


def test_report_counts_proposals_by_their_outcome():
    report = session_report(a_session(), a_journal().lines)
    (found,) = rows(report, "proposals")
    assert found == "31: 26 judged (84%), 2 infeasible (6%), 1 known (3%), 1 pruned (3%), 1 failed (3%)"


def test_report_warns_of_pruning_where_it_is_on():
    lines = a_journal(5).lines
    assert "7 to 30 %" not in session_report(a_session(), lines)
    assert "7 to 30 %" in session_report(a_session(prunes=True, n_folds=8), lines)


def test_report_gives_deflated_sharpe_and_pbo_as_not_decided_on():
    report = session_report(a_session(), a_journal(4).nothing_found().lines)
    (line,) = [line for line in report.splitlines() if line.startswith("Not decided on:")]
    assert re.findall(r"0\.\d+", line) == ["0.41", "0.35"]


def test_report_escapes_markup_of_a_goal():
    report = session_report(a_session(goal="a | b <script> [x](y) `c`"), [])
    assert r"Goal: a \| b \<script\> \[x\](y) \`c\`" in report


MARKUP = "[x](http://y) ![i](j) <script>alert(1)</script> **b** `c` | # \n\x1b[31m"


@pytest.mark.parametrize("fresh", [(0.9, 0.9), (0.71, 0.71)])
def test_report_escapes_the_reason_of_the_model(fresh):
    reason = ProposalAnswer(changes={}, reason=MARKUP).reason
    builder = JournalBuilder().answer(changes={"gamma": 0.95}, reason=reason).trial(0.3, gamma=0.95, reason=reason)
    report = session_report(a_session(), builder.rerun("t1", fresh, 0.2).lines)
    (line,) = [line for line in report.splitlines() if line.startswith("- Trial 1:") and "fresh seeds" in line]
    escaped = r"\[x\](http://y) !\[i\](j) \<script\>alert(1)\</script\> \*\*b\*\* \`c\` \| \# \[31m"
    assert line.endswith(f"Reason of the model: {escaped}")


def test_report_gives_no_reason_of_an_optimizer():
    assert "Reason of the model" not in session_report(a_session(), a_journal().lines)


@pytest.mark.parametrize(
    ("proposer", "words"),
    [
        ({"kind": "cma_es"}, "cma_es, seed 1"),
        ({"kind": "llm"}, "llm with optuna: the model proposes 30% of trials after the first 10, seed 1"),
        (
            {"kind": "llm", "optimizer": {"kind": "cma_es"}, "share": 1.0, "n_warmup_trials": 0},
            "llm with cma_es, an experiment: the model proposes 100% of trials, seed 1",
        ),
    ],
)
def test_report_names_the_share_of_the_model(proposer, words):
    (found,) = rows(session_report(a_session(proposer=proposer), []), "proposer")
    assert found == words


def test_answers_of_the_model_change_no_figure_of_the_report():
    plain, asked = JournalBuilder(), JournalBuilder().answer("late", message="after 6 s")
    for builder in (plain, asked):
        builder.trial(0.3, gamma=0.95).rerun("t1", (0.9, 0.9), 0.3)
    asked.answer("bad", message="no number")
    assert session_report(a_session(), asked.lines) == session_report(a_session(), plain.lines)
    assert search_points(asked.lines) == search_points(plain.lines)


def test_report_before_the_base_has_no_results():
    assert headings(session_report(a_session(), [])) == ["What was tried", "More"]


def test_report_of_trials_without_results_has_no_table():
    report = session_report(a_session(), JournalBuilder().trial(None, status="failed").lines)
    assert not any(head.startswith("Best") for head in headings(report))


def test_points_follow_the_kept_trial_and_the_luck_bar():
    builder = a_journal()
    points = search_points(builder.lines)
    assert [point.trial for point in points] == list(range(1, 31))
    assert [point.trial for point in points if point.is_kept] == [14, 22, 23]
    assert [point.trial for point in points if point.sharpe is None] == [5, 13, 19, 21]
    kept = {point.trial: point.sharpe for point in points if point.is_kept}
    assert (points[12].kept, points[13].kept, points[-1].kept) == (None, kept[14], kept[23])
    assert points[-1].luck == pytest.approx(0.7 + builder.state.bar * 0.061)


@pytest.mark.slow
def test_written_report_has_a_picture_once_the_base_is_judged(home):
    folder = SessionFolder.of(home, "one")
    write_report(folder, a_session(), [])
    assert not folder.picture.exists()
    lines = a_journal(8).lines
    write_report(folder, a_session(), lines)
    assert folder.report.read_text() == session_report(a_session(), lines)
    assert folder.picture.read_bytes()[:4] == b"\x89PNG"
