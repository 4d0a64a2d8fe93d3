"""Pages that commands print: plans, policies, runs."""
