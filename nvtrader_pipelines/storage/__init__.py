"""Reads and writes: home folder, Iceberg tables, DuckDB views, policies, specs, landed files; decides nothing."""
