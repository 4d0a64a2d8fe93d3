"""Evaluation of policies: splits, back-test, statistics, intervals and verdicts."""
