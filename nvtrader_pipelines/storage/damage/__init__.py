"""Damaged files of a home: checks, remedies and repairs."""
