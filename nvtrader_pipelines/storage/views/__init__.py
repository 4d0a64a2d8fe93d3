"""DuckDB views of the tables: definitions, the published file, publishing, queries."""
