"""Learning from people: their decisions, outcomes, preference pairs, tuned policies, and retraining."""
