"""Paths of files that a person asks to be written."""

from pathlib import Path

from nvtrader_pipelines.storage.files import require_picture_path


def require_file_path(path: str | Path) -> Path:
    """Return the path of a file to write.

    Raises:
        ValueError: if it is a folder or a device, or its folder does not exist.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        raise ValueError(f"the output must be a file, but {path} is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise ValueError(f"the output must be a regular file, but {path} is a device; name another path")
    folder = path.absolute().parent
    if not folder.is_dir():
        found = "a file" if folder.exists() else "missing"
        raise ValueError(
            f"the output must lie in an existing folder, but {folder} is {found}; create it, or name another path"
        )
    return path


def picture_path(output: str | Path | None, default: Path) -> Path:
    """Return the path of a picture to write.

    Raises:
        ValueError: if it does not end in .png or .svg, is a folder or a device, or its folder does not exist.
    """
    return require_picture_path(require_file_path(output)) if output else default
