"""Prices in account currency, for counting shares; what an account earns comes from the panel's returns alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.dynamics import FillTiming

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices of a panel's names on its sessions, adjusted as its returns are; NaN where there is no bar."""

    opens: FloatArray  # (T, N); of a bar without an open its close
    closes: FloatArray  # (T, N)
    last_closes: FloatArray  # (T, N) last known close, from before the panel's first session on; NaN before any
    volumes: FloatArray  # (T, N) shares at the same adjustment; NaN where not known

    def filled_at(self, fill: FillTiming) -> FloatArray:
        """The prices orders fill at, (T, N)."""
        return self.opens if fill == "next_open" else self.closes
