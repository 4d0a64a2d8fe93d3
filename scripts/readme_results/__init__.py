"""Results in the README: rows read from a built home, and their Markdown."""
