"""Portfolios: anchors, optimizers, costs, scenarios and the weight pipeline."""
