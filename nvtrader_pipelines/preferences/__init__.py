"""What was better in hindsight, as pairs of a chosen and a rejected portfolio."""
