"""Revisions of the ledger; one that was released is never changed."""
