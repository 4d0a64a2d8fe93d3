"""Revisions of the ledger. A released revision never changes."""
