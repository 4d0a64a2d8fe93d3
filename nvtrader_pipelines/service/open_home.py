"""Choice of the home that a command or a program works on, its store, and who acts."""

import getpass
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store


@dataclass(frozen=True)
class OpenHome:
    """Store of a home, the person who acts, and whether long work shows its progress."""

    store: Store
    by: str
    is_quiet: bool = False
    is_served: bool = False  # by the service, which closes killed runs by itself

    @classmethod
    def find(cls, folder: Path | None = None, *, is_quiet: bool = False) -> Self:
        """Open a home, chosen as by `require_home`, for the current user.

        Args:
            folder: folder of the home.
            is_quiet: whether to show no progress.

        Raises:
            ValueError: if there is no home.
        """
        return cls(open_store(folder), current_user(), is_quiet)


def require_home(folder: Path | None = None) -> Home:
    """Return the home in `folder`, else that of `Home.find`.

    Raises:
        ValueError: if the folder is no home, or $NVTRADER_HOME is no folder.
    """
    if folder is not None:
        home = Home.at(folder)
        if not home.experiments.is_dir():
            raise ValueError(
                f"{home.root} must be a home, but has no data/experiments; name another folder, or create "
                "a home: `nvtrader init DIR`, or Pipeline.create(DIR) in Python"
            )
        return home
    home = Home.find()
    if not home.root.is_dir():
        raise ValueError(f"NVTRADER_HOME must name a folder, but {home.root} is none; create it or name another")
    if Home.find_fixed() is None and not home.experiments.is_dir():
        raise ValueError(
            f"the current folder must be a home, but {home.root} has no data/experiments; enter a home, or create one "
            "with `nvtrader init DIR`"
        )
    return home


def open_store(folder: Path | None = None) -> Store:
    """Open the store of a home, chosen as by `require_home`.

    Raises:
        ValueError: if there is no home.
    """
    return Store(require_home(folder))


def current_user() -> str:
    """Name of the user for the audit; the user's number if there is no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # which of them depends on the version of Python
        return f"user {os.getuid()}"
