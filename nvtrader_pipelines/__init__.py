"""NVTrader pipelines: market prices to reinforcement-learning portfolio policies that can be trusted."""
