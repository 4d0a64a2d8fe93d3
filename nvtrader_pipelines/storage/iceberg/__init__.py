"""Iceberg tables: catalog, warehouse, commits, data files, snapshots, upkeep."""
