"""The only opener of files and tables: home folder, Iceberg tables, DuckDB views, policies, specs, landed files."""
