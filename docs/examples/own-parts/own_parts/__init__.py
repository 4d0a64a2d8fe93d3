"""A reward, a feature and an agent for nvtrader_pipelines."""
