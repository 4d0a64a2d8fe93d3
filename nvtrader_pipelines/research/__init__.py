"""AutoResearch: search space, trials, session and verdict."""
