"""NVTrader pipelines: market prices to reinforcement-learning portfolio policies that can be trusted."""

from nvtrader_pipelines.envs import register_environments

register_environments()  # Gymnasium has no plugins; `make("nvtrader_pipelines:...")` imports this package
