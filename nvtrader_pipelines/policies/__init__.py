"""Policies: the protocol, baselines, networks, agents and their training."""
