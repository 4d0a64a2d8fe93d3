import json

import pytest

from benchmarks import claim
from benchmarks.claim import Figure, Goal, import_peer, median_ratio, report, time_rounds


@pytest.mark.parametrize(
    ("goal", "shown", "kept", "missed"),
    [
        (Goal(value_at_most=2.5), "<=2.5", (2.5, None), (2.6, None)),
        (Goal(value_at_least=1e6), ">=1e+06", (1e6, None), (999_999.0, None)),
        (Goal(ratio_at_most=0.5), "<=0.5x", (9.0, 0.5), (0.1, 0.6)),
        (Goal(ratio_at_least=10), ">=10x", (1.0, 10.0), (99.0, 9.9)),
    ],
    ids=str,
)
def test_goal_is_met_at_its_bound_and_missed_beyond(goal, shown, kept, missed):
    assert str(goal) == shown
    assert goal.holds(*kept)
    assert not goal.holds(*missed)


def test_goal_is_not_met_by_nan():
    assert not Goal(value_at_most=1).holds(float("nan"), None)
    assert not Goal(ratio_at_least=1).holds(1.0, float("nan"))


@pytest.mark.parametrize("bounds", [{}, {"value_at_most": 1, "ratio_at_most": 1}], ids=["none", "two"])
def test_goal_without_exactly_one_bound_raises(bounds):
    with pytest.raises(ValueError):
        Goal(**bounds)


def test_line_has_claim_value_unit_ratio_goal_and_outcome(results, capsys):
    reached = report("env-steps", 1234567.0, "steps/s", Goal(ratio_at_least=2), ratio=3.14159)
    report("commit", 0.25, "s", Goal(value_at_most=0.1))
    assert capsys.readouterr().out == "env-steps 1.23457e+06 steps/s 3.14 >=2x ok\ncommit 0.25 s - <=0.1 short\n"
    assert reached == Figure("env-steps", 1234567.0, "steps/s", 3.14159, ">=2x", ok=True, note="")


def test_line_records_time_machine_and_load(results, capsys):
    report("commit", 0.25, "s", Goal(value_at_most=0.1), note="64 rows")
    kept = json.loads((results / "commit.json").read_text())
    asked = {"name": "commit", "value": 0.25, "unit": "s", "ratio": None, "goal": "<=0.1", "ok": False}
    assert asked.items() <= kept.items()
    assert kept["verdict"] == "short"
    assert kept["note"] == "64 rows"
    assert kept["measured_at"].endswith("+00:00")
    assert kept["load"] >= 0
    assert kept["machine"]["cores"] >= 1
    assert {"numpy", "torch"} <= kept["machine"]["libraries"].keys()
    assert {"bt", "Riskfolio-Lib"} <= kept["machine"]["peers"].keys()


def test_report_replaces_the_last_measurement(results, capsys):
    for value in (1.0, 2.0):
        report("commit", value, "s", Goal(value_at_most=3))
    assert json.loads((results / "commit.json").read_text())["value"] == 2.0
    assert len(list(results.iterdir())) == 1


@pytest.mark.parametrize(
    ("name", "value", "unit", "ratio"),
    [
        ("two words", 1, "s", 1),
        ("", 1, "s", 1),
        ("up/there", 1, "s", 1),
        ("commit", 1, "", 1),
        ("commit", float("nan"), "s", 1),
        ("commit", 1, "s", float("inf")),
        ("commit", 1, "s", None),
    ],
)
def test_report_invalid_figure_raises(results, capsys, name, value, unit, ratio):
    with pytest.raises(ValueError):
        report(name, value, unit, Goal(ratio_at_least=1), ratio=ratio)
    assert capsys.readouterr().out == ""
    assert not results.exists()


def test_ratio_to_a_missing_peer_is_open(results, capsys, monkeypatch):
    monkeypatch.setattr(claim, "_missing", set())
    assert import_peer("no_such_peer.of_ours") is None
    assert "`make bench` installs it" in capsys.readouterr().err
    assert report("faster", 1.0, "s", Goal(ratio_at_least=2)).ok is None
    assert report("fast", 1.0, "s", Goal(value_at_most=2)).ok
    assert capsys.readouterr().out == "faster 1 s - >=2x open\nfast 1 s - <=2 ok\n"


def test_broken_peer_raises_and_is_not_reported_missing():
    assert import_peer("json") is json
    with pytest.raises(ModuleNotFoundError, match="no_such_part"):
        import_peer("json.no_such_part")


def test_time_rounds_runs_all_in_every_round_after_a_warm_up():
    ticks = iter(range(1000))
    met = {"ours": [], "theirs": []}
    implementations = {name: calls.append for name, calls in met.items()}
    seconds = time_rounds(implementations, 3, clock=lambda: float(next(ticks)))
    assert met == {"ours": [0, 0, 1, 2], "theirs": [0, 0, 1, 2]}
    assert seconds == {"ours": [1.0] * 3, "theirs": [1.0] * 3}


def test_ratio_is_the_median_over_rounds():
    assert median_ratio({"theirs": [2.0, 3.0, 4.0], "ours": [1.0, 1.0, 100.0]}, "theirs", "ours") == 2.0
