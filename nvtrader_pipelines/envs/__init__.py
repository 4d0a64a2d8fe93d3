"""The portfolio environment: dynamics, observations, actions, rewards, and its scalar and batched shells."""

from gymnasium.envs.registration import register


def register_environments() -> None:
    """Register the environments; the package does so when it is imported."""
    register(
        id="nvtrader/PortfolioCVaR-v0",
        entry_point="nvtrader_pipelines.envs.portfolio_env:PortfolioEnv",
    )
