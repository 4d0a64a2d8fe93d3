"""The `nvtrader` command line."""
