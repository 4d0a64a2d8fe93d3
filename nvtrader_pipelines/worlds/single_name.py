"""Panel of one name of a market."""

from dataclasses import replace

import numpy as np

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.market.panel import MarketPanel, map_arrays


def panel_of_symbol(panel: MarketPanel, symbol: str | None) -> MarketPanel:
    """Return the panel of one name alone, by default of the first.

    Raises:
        ValueError: if the market lacks the symbol.
    """
    name = panel.symbols[0] if symbol is None else symbol
    if name not in panel.symbols:
        raise ValueError(
            f"symbol must be one of the {len(panel.symbols)} of the market {panel.source!r}, but {name!r} is not"
            f"{suggest(name, panel.symbols)}"
        )
    column = panel.symbols.index(name)
    alone = map_arrays(panel, lambda array: np.ascontiguousarray(array[:, [column]]))
    return replace(alone, symbols=(name,))
