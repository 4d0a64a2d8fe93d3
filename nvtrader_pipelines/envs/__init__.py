"""Portfolio environment: dynamics, observations, actions, rewards, terminations.

Importing the package registers the Gymnasium environment `nvtrader/PortfolioCVaR-v0`, before or after Gymnasium itself
is imported: commands that only read accounts do without it.
"""

from types import ModuleType

from wrapt import when_imported


@when_imported("gymnasium")
def _register(gymnasium: ModuleType) -> None:
    gymnasium.register(id="nvtrader/PortfolioCVaR-v0", entry_point=f"{__name__}.portfolio_env:PortfolioEnv")
