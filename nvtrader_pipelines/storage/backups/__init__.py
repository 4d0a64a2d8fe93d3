"""Backups of a home: a tar file with a manifest of digests; written beside running jobs, restored anywhere."""
