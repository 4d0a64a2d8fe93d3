"""Checks of an account's rows that failed or never ended: while there is one, the account is not traded."""

from pathlib import Path

from nvtrader_pipelines.storage.home import Home

EVERY_ACCOUNT = "_every"  # in place of an account's name, none of which begins so


def hold(home: Home, account: str, check: str) -> None:
    """Hold an account until the check passes."""
    marker = _marker(home, account, check)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()


def release(home: Home, account: str, check: str) -> None:
    """No longer hold an account for the check, which has passed."""
    _marker(home, account, check).unlink(missing_ok=True)


def holding(home: Home, account: str) -> list[str]:
    """Checks that hold an account, sorted by name."""
    return sorted(each.name for name in (account, EVERY_ACCOUNT) for each in _marker(home, name, "").glob("*"))


def _marker(home: Home, account: str, check: str) -> Path:
    return home.runtime / "checks" / account / check
