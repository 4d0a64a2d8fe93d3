"""Sharpe ratio inference: standard errors, deflation, and the ratio curve over runs."""
