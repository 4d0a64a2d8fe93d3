"""Honest judgement of policies: splits, back-test, statistics, intervals, verdicts, curves, figures."""
