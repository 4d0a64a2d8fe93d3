"""Brokers: where orders go, and what an account holds."""
