"""Storage of tables, ledger, policies, specs, audit and landed files; it decides nothing."""
