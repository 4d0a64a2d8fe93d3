"""Portfolio environment: dynamics, observations, actions, rewards, terminations.

Importing the package registers the Gymnasium environment `nvtrader/PortfolioCVaR-v0`.
"""

import gymnasium

gymnasium.register(id="nvtrader/PortfolioCVaR-v0", entry_point=f"{__name__}.portfolio_env:PortfolioEnv")
