"""Damaged files of a home: how they are found, and how those made from other files are rebuilt."""
