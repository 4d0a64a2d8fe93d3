"""Backups: a tar file of a home with a digest of every file, written beside running jobs."""
