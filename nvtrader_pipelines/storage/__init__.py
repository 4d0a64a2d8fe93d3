"""Storage: home folder, Iceberg tables, DuckDB views, ledger, policies, specs, landed files; it decides nothing."""
