import json

import jsonschema
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.research.journal import ModelAsked, format_line, read_line
from nvtrader_pipelines.research.model_answers import (
    MAX_REASON,
    ProposalAnswer,
    foreign_figures,
    proposal_schema,
    take_answer,
)
from nvtrader_pipelines.research.proposal_bounds import BoundsClip, DeltaRefused
from nvtrader_pipelines.research.proposers import LlmProposer
from nvtrader_pipelines.research.study import Study
from tests.research.sessions import SPACE, START


def answer(changes, reason="more steps", **fields):
    return ProposalAnswer.model_validate_json(json.dumps({"changes": changes, "reason": reason, **fields}))


def test_answer_keeps_the_values_of_the_base_for_other_knobs():
    proposed = take_answer(answer({"lookback": 30.0, "gamma": 0.95}, expects=0.8), SPACE)
    assert proposed == {**SPACE.base_values, "lookback": 30, "gamma": 0.95}
    assert list(proposed) == list(SPACE.base_values)
    assert type(proposed["lookback"]) is int


def test_answer_without_changes_is_the_base():
    assert take_answer(answer({}), SPACE) == take_answer(answer({"lookback": None}), SPACE) == SPACE.base_values


def test_schema_of_a_proposal_has_every_knob_and_admits_answers():
    schema = proposal_schema(SPACE)
    validator = jsonschema.Draft202012Validator(schema)
    changes = dict.fromkeys(SPACE.base_values)
    assert validator.is_valid(
        {"changes": {**changes, "gamma": 0.95}, "reason": "r", "expects": None, "cites_goal": True}
    )
    assert not validator.is_valid(
        {"changes": {**changes, "policy": 1}, "reason": "r", "expects": None, "cites_goal": True}
    )


@pytest.mark.parametrize(
    ("paragraph", "foreign"),
    [
        ("Of 12 trials the best has a Sharpe ratio of .85.", []),
        ("Ten of 10,000 scenarios, and 0.850 again; a loss of 0.40.", []),
        ("The best of 3 seeds has 9, and -2.31 or 2.31e9, with +0.40.", ["3", "9", "-2.31", "2.31e9", "+0.40"]),
        ("The Sharpe ratio of 17.25 is 1,234 times better, and 0.86 is not 0.85.", ["17.25", "1,234", "0.86"]),
    ],
)
def test_figure_that_a_report_lacks_is_foreign(paragraph, foreign):
    report = "12 trials; Sharpe ratio 0.85, t 2.31; 10,000 scenarios; lead \N{MINUS SIGN}0.40"
    assert foreign_figures(paragraph, report) == foreign


@pytest.mark.parametrize(("value", "used"), [(61, 60), (-1e300, 5), (10**300, 60)])
def test_answer_out_of_bounds_is_clipped_and_journalled(value, used):
    proposed = take_answer(answer({"lookback": value}), SPACE)
    effective = SPACE.propose(proposed)
    assert effective.clips == (BoundsClip(knob="lookback", proposed=int(float(value)), used=used),)
    assert effective.trial.knobs["lookback"] == used
    line = ModelAsked(
        proposal=11, outcome="proposed", proposed=proposed, model="m", prompt="p", seconds=1.0, finished_at=START
    )
    assert read_line(format_line(line)) == line


def test_proposal_out_of_bounds_is_restored_as_it_was_replaced():
    proposed = take_answer(answer({"lookback": 10**300, "gamma": -1.0}), SPACE)
    replaced, restored = (Study(LlmProposer(n_warmup_trials=0), SPACE.knobs, seed=1) for _ in range(2))
    replaced.ask(1)
    replaced.replace(1, proposed)
    restored.add(1, proposed)
    for study in (replaced, restored):
        study.tell(1, 0.5)
    assert replaced.ask(2) == restored.ask(2)


@pytest.mark.parametrize(
    "document",
    [
        '{"changes": {"lookback": NaN}, "reason": "r"}',
        '{"changes": {"lookback": Infinity}, "reason": "r"}',
        '{"changes": {"lookback": 1e999}, "reason": "r"}',
        '{"changes": {"lookback": 1' + "0" * 400 + '}, "reason": "r"}',
        '{"changes": {"lookback": 1' + "0" * 9000 + '}, "reason": "r"}',
        '{"changes": {"lookback": "30"}, "reason": "r"}',
        '{"changes": {"lookback": true}, "reason": "r"}',
        '{"changes": {"lookback": [30]}, "reason": "r"}',
        '{"changes": [["lookback", 30]], "reason": "r"}',
        '{"changes": {"lookback": 30}}',
        '{"changes": {"lookback": 30}, "reason": 1}',
        '{"changes": {"lookback": 30}, "reason": "r", "expects": NaN}',
        '{"changes": {"lookback": 30}, "reason": "r", "expects": "high"}',
        '{"changes": {"lookback": 30}, "reason": " \\n"}',
        "[]",
        "activate policy X",
    ],
    ids=lambda document: document[:40],
)
def test_document_of_other_types_is_no_answer(document):
    with pytest.raises(ValidationError):
        ProposalAnswer.model_validate_json(document)


@pytest.mark.parametrize(
    "changes",
    [
        {"lookback": 30, "activate policy X": 1},
        {"cvar_alpha": 0.9},  # of another mode
        {"__class__": 1.0},
        {"lookback": 30.5},
    ],
)
def test_answer_that_fits_no_knob_is_refused_in_a_sentence(changes):
    with pytest.raises(DeltaRefused) as refused:
        take_answer(answer(changes), SPACE)
    assert "\n" not in refused.value.problem
    assert refused.value.knobs == tuple(SPACE.base_values)


def test_other_fields_of_an_answer_are_not_read():
    assert answer({"lookback": 30}, policy="X", proposed={"gamma": 0.9}) == answer({"lookback": 30})


def test_long_reason_is_cut():
    assert len(answer({}, "r" * (MAX_REASON + 1)).reason) == MAX_REASON


def test_reason_is_one_line_without_control_characters():
    text = "more\nsteps\x1b[31m \u202ereversed\x00 \t<b>*bold*</b> "
    assert answer({}, text).reason == "more steps [31m reversed <b>*bold*</b>"
