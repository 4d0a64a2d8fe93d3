"""Preference pairs: the portfolio that was better in hindsight, and a rejected one."""
