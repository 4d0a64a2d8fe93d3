"""Portfolio environment: dynamics, observations, actions, rewards, terminations."""
