"""One file per claim of speed; `make bench` runs them all and `docs/benchmarks.md` keeps what they found."""
