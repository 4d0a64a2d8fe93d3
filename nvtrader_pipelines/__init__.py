"""NVTrader pipelines: market prices to reinforcement-learning portfolio policies that can be trusted."""

from nvtrader_pipelines.envs import register_environments

register_environments()  # `gymnasium.make("nvtrader_pipelines:...")` imports this package, and no more
