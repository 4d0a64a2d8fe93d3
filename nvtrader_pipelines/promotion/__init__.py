"""Which policy trades: the gate, its decisions, activation, and verification of the active policy."""
