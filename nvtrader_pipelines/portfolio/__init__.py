"""Portfolios: anchors and classical optimisers."""
