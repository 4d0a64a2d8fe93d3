"""Use cases of a run: plan, train, walk, judge, replay, resume."""
