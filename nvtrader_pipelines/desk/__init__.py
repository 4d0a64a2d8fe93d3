"""Trading of accounts by the active policy: sessions, plans, orders, halt, mirror."""
