"""Report: all results on one HTML page, and the README's table."""
