"""Order books to trade in: of a generator, or landed."""

from functools import lru_cache
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.text import Name
from nvtrader_pipelines.worlds.book_events import EVENT, EXCHANGE, LOCAL, book_history, event_flags
from nvtrader_pipelines.worlds.book_history import BookHistory

_FIRST_DAY = np.datetime64("2000-01-03", "ns")
SECOND = 1_000_000_000  # nanoseconds
MIN_TICKS, MAX_TICKS = 1_000, 1_000_000  # of the price
MAX_EVENTS = 50_000_000  # of a day, on average


class GeneratedBooks(Component):
    """Book of orders of one lot each that arrive, trade and are cancelled at random; a seed gives the same book.

    Limit orders arrive within ten ticks of the other side at a rate that falls as a power of the distance, each waiting
    order is cancelled at the same rate. Market orders lean to buys for a while, then to sells.

    Source: Cont, Stoikov & Talreja (2010), A Stochastic Model for Order Book Dynamics, for the rates; Lillo & Farmer
    (2004), The Long Memory of the Efficient Market, for the persistence of market orders.
    """

    kind: Literal["generated"] = "generated"
    seed: Annotated[int, Field(ge=0)] = 0
    train_days: PositiveInt = 3
    test_days: PositiveInt = 1
    day_seconds: Annotated[int, Field(ge=60, le=86_400)] = 7_200
    price: PositiveFloat = 100.0  # at the start of each day
    tick: PositiveFloat = 0.01
    limit_rate: Annotated[float, Field(ge=1e-3, le=1e3)] = 1.92  # orders a second, at one tick from the other side
    limit_decay: Annotated[float, Field(ge=0.0, le=10.0)] = 0.52  # exponent of the distance
    market_rate: Annotated[float, Field(ge=1e-4, le=1e3)] = 0.94  # orders a second that buy, and that sell, on average
    cancel_rate: Annotated[float, Field(ge=1e-4, le=1e3)] = 0.71  # a second, of each order
    persistence: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.4  # lean of market orders; 0: they are independent
    regime_seconds: Annotated[float, Field(ge=1.0, le=1e6)] = 120.0  # average length of a lean

    @model_validator(mode="after")
    def _require_bounds(self) -> Self:
        n_ticks = self.price / self.tick
        if not MIN_TICKS <= n_ticks <= MAX_TICKS:
            raise ValueError(
                f"price must be {MIN_TICKS:,} to {MAX_TICKS:,} ticks, but is {n_ticks:.4g}; change the tick"
            )
        n_events = (4.0 * self._limit_rates.sum() + 4.0 * self.market_rate) * self.day_seconds
        if n_events > MAX_EVENTS:
            raise ValueError(
                f"a day must have {MAX_EVENTS:,} events at most, but has {n_events:,.0f}; lower rates or day_seconds"
            )
        return self

    @property
    def _limit_rates(self) -> NDArray[np.float64]:
        """Limit orders a second by distance from the other side, from one tick, (10,)."""
        return self.limit_rate / np.arange(1.0, 11.0) ** self.limit_decay

    def events(self, day: int, *, is_test: bool = False) -> NDArray[np.void]:
        """Draw the events of one day, rows of `EVENT`; days are two days apart.

        Raises:
            ValueError: if the price falls to 0 or doubles.
        """
        from nvtrader_pipelines.worlds.book_loops import generate  # imports numba

        rows = generate(
            np.random.default_rng([self.seed, is_test, day]),
            self._limit_rates,
            (self.market_rate, self.cancel_rate, self.persistence, self.regime_seconds),
            round(self.price / self.tick),
            float(self.day_seconds),
        )
        if not len(rows):
            raise ValueError(
                f"day {day} of the generated book: the price must stay between 0 and {2 * self.price:g}, but "
                "leaves it; choose a smaller tick, a shorter day, or less persistence"
            )
        events = np.zeros(len(rows), EVENT)
        events["ev"] = EXCHANGE | LOCAL | event_flags(rows[:, 0], rows[:, 1])
        events["exch_ts"] = events["local_ts"] = (_FIRST_DAY + np.timedelta64(2 * day, "D")).astype(np.int64) + rows[
            :, 2
        ]
        events["px"], events["qty"] = rows[:, 3] * self.tick, rows[:, 4]
        return events

    def history(self, *, is_test: bool) -> BookHistory:
        """Book of the days to train on, or to test on, at every second."""
        return _generated(self.model_dump_json(), is_test=is_test)


@lru_cache(maxsize=2)
def _generated(document: str, *, is_test: bool) -> BookHistory:
    books = GeneratedBooks.model_validate_json(document)
    n_days = books.test_days if is_test else books.train_days
    events = np.concatenate([books.events(day, is_test=is_test) for day in range(n_days)])
    return book_history("generated", events, SECOND)


class LandedBook(Component):
    """Book of events of one's own, landed by `nvtrader worlds land`."""

    kind: Literal["landed"] = "landed"
    name: Name = "book"


Books = Annotated[GeneratedBooks | LandedBook, Field(discriminator="kind")]
