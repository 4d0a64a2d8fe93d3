"""Market data as of each session: sources, calendar, bars, returns, features, panel."""
