import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from nvtrader_pipelines.research.knobs import Knob
from nvtrader_pipelines.research.proposers import (
    CmaEsProposer,
    LlmProposer,
    OptunaProposer,
    Proposer,
    spaced_values,
)

SHARES = st.floats(0.01, 1.0)


def turns(proposer, n):
    return [number for number in range(1, n + 1) if proposer.is_turn_of_model(number)]


def test_model_makes_three_of_ten_proposals_after_the_warmup():
    assert turns(LlmProposer(), 30) == [14, 17, 20, 24, 27, 30]


@pytest.mark.parametrize("n_warmup", [0, 7])
def test_model_alone_makes_every_proposal_after_the_warmup(n_warmup):
    assert turns(LlmProposer(share=1.0, n_warmup_trials=n_warmup), 12) == [*range(n_warmup + 1, 13)]


@given(share=SHARES, n_warmup=st.integers(0, 20), n=st.integers(0, 200))
def test_turns_are_the_share_of_later_proposals_and_evenly_spread(share, n_warmup, n):
    numbers = turns(LlmProposer(share=share, n_warmup_trials=n_warmup), n_warmup + n)
    assert all(number > n_warmup for number in numbers)
    assert len(numbers) == pytest.approx(n * share, abs=1.0)
    assert len(numbers) <= n * share
    gaps = np.diff(numbers)
    assert gaps.size == 0 or gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize(("share", "is_experiment"), [(0.05, False), (0.3, False), (0.31, True), (1.0, True)])
def test_more_than_the_share_of_the_study_is_an_experiment(share, is_experiment):
    assert LlmProposer(share=share).is_experiment is is_experiment


@pytest.mark.parametrize(
    "fields",
    [
        {"share": 0.0},
        {"share": 1.1},
        {"n_warmup_trials": -1},
        {"optimizer": {"kind": "grid"}},
        {"optimizer": {"kind": "llm"}},
    ],
)
def test_settings_of_the_hybrid_are_checked(fields):
    with pytest.raises(ValidationError):
        LlmProposer.model_validate(fields)


@pytest.mark.parametrize("optimizer", [OptunaProposer(), CmaEsProposer(population_size=5)])
def test_hybrid_is_its_optimizer_where_the_model_is_silent(optimizer):
    document = {"kind": "llm", "optimizer": optimizer.model_dump()}
    hybrid = TypeAdapter(Proposer).validate_python(document)
    assert (hybrid.optimizer, hybrid.reason, hybrid.is_stateful) == (
        optimizer,
        optimizer.reason,
        optimizer.is_stateful,
    )
    assert type(hybrid.start([], 1)(1)) is type(optimizer.start([], 1)(1))


def test_spaced_values_have_equal_steps_or_ratios():
    assert spaced_values(Knob("a", "", "", 1e-5, 1e-2, is_log=True), 4) == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2])
    assert spaced_values(Knob("a", "", "", 5, 65, is_whole=True), 4) == [5, 25, 45, 65]
