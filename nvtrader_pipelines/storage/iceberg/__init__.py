"""Iceberg tables: catalog, commits, data files, snapshots, upkeep."""
