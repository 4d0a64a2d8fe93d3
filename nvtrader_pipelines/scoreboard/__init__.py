"""Entrants of a contest, their scorecards and their ranking."""
