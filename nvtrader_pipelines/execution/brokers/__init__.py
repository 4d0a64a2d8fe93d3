"""Venues and brokers: where orders go, and what an account holds."""
