"""A new home with the shipped files."""

from pathlib import Path

from nvtrader_pipelines.storage.files import require_new_folder, write_atomically
from nvtrader_pipelines.storage.home import Home

PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED_FILES = (  # below `data/`; pyproject.toml puts the same files into the wheel
    "market.yaml",
    "experiments/cufolio.yaml",
    "experiments/ppo-cvar.yaml",
    "experiments/ppo-growth.yaml",
    "experiments/ppo-residual.yaml",
    "accounts/README.md",
    "compliance/README.md",
    "compliance/sectors.csv",
)


def create_home(root: Path) -> Home:
    """Create a home with the shipped market file, experiments and compliance files.

    Raises:
        StorageError: if the folder is not empty, or is or lies below a file, or its path reads as a URL.
    """
    home = Home.at(root)
    require_new_folder(home.root)
    packaged = PACKAGE / "shipped"  # in a wheel only; a checkout has the files in its own `data/`
    source = packaged if packaged.is_dir() else PACKAGE.parent / "data"
    for name in SHIPPED_FILES:
        write_atomically(home.root / "data" / name, (source / name).read_bytes())
    home.landing.mkdir()
    home.warehouse.mkdir()
    return home
