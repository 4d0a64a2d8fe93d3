"""Interfaces for people: command line, documents and report."""
