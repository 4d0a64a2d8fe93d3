"""One HTML page with every result."""
