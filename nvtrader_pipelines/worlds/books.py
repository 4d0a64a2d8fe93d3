"""Order books to trade in: of a generator, or landed."""

from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.text import Name
from nvtrader_pipelines.worlds.book_events import EVENT, EXCHANGE, LOCAL, book_history, event_flags
from nvtrader_pipelines.worlds.book_history import BookHistory

_FIRST_DAY = np.datetime64("2000-01-03", "ns")
SECOND = 1_000_000_000  # nanoseconds


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
    limit_rate: PositiveFloat = 1.92  # orders a second, at one tick from the other side
    limit_decay: PositiveFloat = 0.52  # exponent of the distance
    market_rate: PositiveFloat = 0.94  # orders a second that buy, and that sell, on average
    cancel_rate: PositiveFloat = 0.71  # a second, of each order
    persistence: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.4  # lean of market orders; 0: they are independent
    regime_seconds: PositiveFloat = 120.0  # average length of a lean

    def events(self, day: int, *, is_test: bool = False) -> NDArray[np.void]:
        """Draw the events of one day, rows of `EVENT`."""
        from nvtrader_pipelines.worlds.book_loops import generate  # imports numba

        rows = generate(
            np.random.default_rng([self.seed, is_test, day]),
            self.limit_rate / np.arange(1.0, 11.0) ** self.limit_decay,
            (self.market_rate, self.cancel_rate, self.persistence, self.regime_seconds),
            round(self.price / self.tick),
            float(self.day_seconds),
        )
        events = np.zeros(len(rows), EVENT)
        events["ev"] = EXCHANGE | LOCAL | event_flags(rows[:, 0], rows[:, 1])
        events["exch_ts"] = events["local_ts"] = (_FIRST_DAY + np.timedelta64(day, "D")).astype(np.int64) + rows[:, 2]
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
