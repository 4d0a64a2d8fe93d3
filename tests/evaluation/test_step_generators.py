import pytest

from nvtrader_pipelines.evaluation.step_generators import Steps, drain


def counting(n):
    yield from range(n)
    return "result"


def test_drain_reports_each_step_and_returns_the_result():
    seen = []
    assert drain(counting(3), seen.append) == "result"
    assert seen == [0, 1, 2]
    assert drain(counting(0)) == "result"


def test_steps_have_a_result_once_they_are_done():
    steps = Steps(counting(2))
    assert list(steps) == [0, 1]
    assert steps.result == "result"


def test_steps_of_a_generator_that_raises_pass_the_error_on():
    def failing():
        yield 1
        raise ValueError("broken")

    with pytest.raises(ValueError):
        drain(failing())
