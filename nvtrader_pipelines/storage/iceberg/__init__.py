"""Iceberg tables: catalog, warehouse, commits, data files, compaction, snapshots, upkeep."""
