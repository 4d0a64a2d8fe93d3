import json

import pytest

from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT
from tests.service.cli.error_lines import is_one_line_error


@pytest.fixture
def research(home, command):
    (home.experiments / "mine.yaml").write_text("name: mine\nagent: {kind: ppo, gamma: 0.5, n_epochs: 5}\n")
    invoke = command(home)
    return lambda *arguments: invoke("research", "space", *arguments)


def test_space_lists_knobs_with_bounds_and_base(research):
    found = research()
    assert found.exit_code == 0
    rows = [line.split() for line in found.stdout.splitlines()]
    assert ["learning_rate", "ppo", "1e-05", "0.01", "real", "log", "0.003"] in rows
    assert ["lookback", "env", "5", "60", "whole", "linear", "20"] in rows
    assert ["12", "rows"] in rows


def test_space_around_an_experiment_reports_its_clips(research):
    document = json.loads(research("--mode", "unified", "--like", "mine", "--json").stdout)
    assert (document["mode"], document["base"], len(document["knobs"])) == ("unified", "mine", 16)
    assert document["base_clips"] == [{"knob": "gamma", "proposed": 0.5, "used": 0.9}]
    assert {each["knob"]: each["high"] for each in document["knobs"]}["max_position_pct"] == 0.25
    assert len(document["notices"]) == 2  # position limit, allocator


def test_space_of_a_file_has_its_paths(research, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("agent.clip_range: {low: 0.1, high: 0.4}\n")
    (knob,) = json.loads(research("--space", str(path), "--json").stdout)["knobs"]
    assert (knob["knob"], knob["low"], knob["high"], knob["base"]) == ("agent.clip_range", 0.1, 0.4, 0.2)
    path.write_text("agent.clip_rnge: {low: 0.1, high: 0.4}\n")
    refused = research("--space", str(path))
    assert refused.exit_code == BAD_INPUT
    assert is_one_line_error(refused.stderr)


def test_json_schema_has_a_property_per_knob(research):
    document = json.loads(research("--json-schema", "--mode", "cufolio_only").stdout)
    assert list(document["properties"]) == ["cvar_alpha", "max_position_pct", "n_scenarios", "cufolio_hold_days"]


def test_space_around_an_unknown_experiment_exits_with_3(research):
    refused = research("--like", "mien")
    assert refused.exit_code == BAD_INPUT
    assert is_one_line_error(refused.stderr)
