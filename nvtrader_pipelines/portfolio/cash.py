"""The name of what is in no asset."""

CASH = "cash"  # last of the names of a weight vector
