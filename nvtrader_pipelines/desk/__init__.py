"""An account trading the active policy: session, plans, orders, halt, mirror."""
