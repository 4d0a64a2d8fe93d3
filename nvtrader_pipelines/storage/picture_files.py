"""Pictures as files."""

from pathlib import Path

from nvtrader_pipelines.figures.canvas import Picture, RenderedPicture
from nvtrader_pipelines.storage.files import write_atomically

FORMATS = (".png", ".svg")


def require_picture_path(path: Path) -> Path:
    """Return the path of a picture to write.

    Raises:
        ValueError: if its suffix is neither .png nor .svg.
    """
    if path.suffix.lower() not in FORMATS:
        found = f"ends in {path.suffix}" if path.suffix else "has no suffix"
        raise ValueError(f"the name of a picture must end in .png or .svg, but {path.name} {found}; name another path")
    return path


def write_picture(path: Path, picture: Picture | RenderedPicture) -> None:
    """Write a picture in the format that the suffix of the path names."""
    suffix = require_picture_path(path).suffix.lower()
    write_atomically(path, picture.svg() if suffix == ".svg" else picture.png())
