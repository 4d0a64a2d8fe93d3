"""Run a generator, report its steps, and keep its return value."""

from collections.abc import Callable, Generator, Iterator
from typing import Generic, TypeVar

Step = TypeVar("Step")
Result = TypeVar("Result")


class Steps(Generic[Step, Result]):
    """The steps of a generator to loop over; `result` is its return value once they are done."""

    result: Result

    def __init__(self, generator: Generator[Step, None, Result]) -> None:
        self._generator = generator

    def __iter__(self) -> Iterator[Step]:
        """Yield each step."""
        self.result = yield from self._generator


def drain(steps: Generator[Step, None, Result], on_step: Callable[[Step], object] = lambda _: None) -> Result:
    """Run a generator to its end, call `on_step` with each step, and return the generator's result."""
    running = Steps(steps)
    for step in running:
        on_step(step)
    return running.result
