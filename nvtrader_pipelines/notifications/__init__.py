"""Notifications: states that need a person, sent once to each channel by webhook or e-mail."""
