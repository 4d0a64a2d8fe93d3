"""Worlds beyond portfolios: an order to execute, an asset or an order book to trade, and a market to make.

Importing the package registers `tradesim_execution-v0`, `tradesim_algotrading-v0`, `finagent_trading-v0`,
`tradesim_hft-v0` and `market_making-v0` with Gymnasium, and `tradesim_portfolio-v0` as a second id of the portfolio
environment, before or after Gymnasium itself is imported.
"""

from types import ModuleType

from wrapt import when_imported

_ENTRY_POINTS = {
    "tradesim_execution-v0": f"{__name__}.world_env:order_execution_env",
    "tradesim_hft-v0": f"{__name__}.world_env:book_trading_env",
    "market_making-v0": f"{__name__}.world_env:market_making_env",
    "tradesim_algotrading-v0": f"{__name__}.world_env:single_asset_env",
    "finagent_trading-v0": f"{__name__}.world_env:finagent_trading_env",
    "tradesim_portfolio-v0": "nvtrader_pipelines.envs.portfolio_env:PortfolioEnv",
}


@when_imported("gymnasium")
def _register(gymnasium: ModuleType) -> None:
    for name, entry_point in _ENTRY_POINTS.items():
        gymnasium.register(id=name, entry_point=entry_point)
