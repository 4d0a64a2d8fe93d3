"""The portfolio environment: dynamics, observations, actions, rewards, and its scalar and batched shells."""
