"""One program per claim of speed."""
