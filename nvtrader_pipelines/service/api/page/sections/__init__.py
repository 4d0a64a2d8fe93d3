"""Sections of the page: each reads part of the home and renders it."""
