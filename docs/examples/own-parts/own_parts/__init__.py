"""A reward, a feature, an agent and a strategy for nvtrader_pipelines."""
