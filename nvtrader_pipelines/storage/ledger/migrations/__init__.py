"""Migrations of the ledger, one module per revision under `versions`."""
