"""What was known, when: sources, calendar, bars, returns, features, panel."""
