"""Benchmarks, one file per claim of speed, reported in `docs/benchmarks.md`."""
