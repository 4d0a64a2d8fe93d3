"""Holds on accounts: an account is not traded while a check of its rows fails or has not ended."""

from pathlib import Path

from nvtrader_pipelines.storage.home import Home

EVERY_ACCOUNT = "_every"  # in place of an account, whose name cannot begin with _


def hold_account(home: Home, account: str, check: str) -> None:
    """Hold an account until the check passes."""
    marker = _marker_path(home, account, check)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()


def release_account(home: Home, account: str, check: str) -> None:
    """Release an account from the hold of a check that passed."""
    _marker_path(home, account, check).unlink(missing_ok=True)


def failing_checks(home: Home, account: str) -> list[str]:
    """Names of the checks that hold an account, sorted."""
    return sorted(each.name for name in (account, EVERY_ACCOUNT) for each in _marker_path(home, name, "").glob("*"))


def _marker_path(home: Home, account: str, check: str) -> Path:
    return home.runtime / "checks" / account / check
