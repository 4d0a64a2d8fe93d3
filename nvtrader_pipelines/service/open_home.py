"""Choice of the home that a command or a program works on, and its store."""

from pathlib import Path

from nvtrader_pipelines.storage.damage.home_check import require_intact
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store


def require_home(folder: Path | None = None) -> Home:
    """Return the home in `folder`, else of $NVTRADER_HOME, the checkout or the current folder.

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
        DamagedFileError: if a file that every command depends on is damaged.
    """
    home = require_home(folder)
    require_intact(home)
    return Store(home)
