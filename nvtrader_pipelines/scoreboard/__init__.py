"""Who competes, how entrants are scored, and how scorecards are ranked."""
