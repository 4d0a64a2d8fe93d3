"""Command-line output that fills a page."""
