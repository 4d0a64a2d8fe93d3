"""Promotion of policies: the gate, its decisions, activation, and checks of the active policy."""
