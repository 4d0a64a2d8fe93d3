"""`nvtrader backup` and `nvtrader restore`: a home as one file, and back."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.output import print_line, write_json
from nvtrader_pipelines.service.consoles import plain_console
from nvtrader_pipelines.service.open_home import open_store
from nvtrader_pipelines.service.output_paths import require_file_path
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    from nvtrader_pipelines.storage.backups.manifest import OnFile

app = typer.Typer()


@command(app.command, "nvtrader backup home.tar", "nvtrader backup /mnt/backups --json")
def backup(
    target: Annotated[Path, typer.Argument(help="New file, or a folder for a file named after the home and the time.")],
    *,
    as_json: bool,
) -> None:
    """Write the whole home into one tar file; other commands may run meanwhile.

    The file holds `data/` and `warehouse/` with a SHA-256 of every file. Locks, logs of steps and the views, which are
    published again, are left out, as is a ledger in Postgres, which the command then names.
    """
    from nvtrader_pipelines.service.documents.home_facts import BackupDocument
    from nvtrader_pipelines.storage.backups.writing import write_backup

    store = open_store()
    name = f"{store.home.root.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar"
    target = target.expanduser().absolute()
    path = require_file_path(target / name if target.is_dir() else target)
    with _show_files("backing up", quiet=as_json) as on_file:
        manifest = write_backup(store, path, on_file)
    size = path.stat().st_size
    if as_json:
        document = BackupDocument(path=path, n_files=len(manifest.files), n_bytes=size, outside=manifest.outside)
        write_json(document.model_dump(mode="json"))
        return
    print_line(f"{path}: {len(manifest.files):,} files, {size / 2**20:,.1f} MiB")
    for part in manifest.outside:
        print_line(f"not in the backup: {part}", "yellow")


@command(app.command, "nvtrader restore home.tar my-home")
def restore(
    file: Annotated[Path, typer.Argument(help="File that `nvtrader backup` wrote.")],
    folder: Annotated[Path, typer.Argument(help="New or empty folder for the home.")],
    *,
    as_json: bool,
) -> None:
    """Restore a backup as a home in a new folder, after every file was verified by its digest.

    Runs that were under way are interrupted in the restored home; the next command that needs them resumes them.
    """
    from nvtrader_pipelines.orchestration.instance import close_copied_runs
    from nvtrader_pipelines.service.documents.home_facts import RestoredHome
    from nvtrader_pipelines.storage.backups.restoring import restore_backup
    from nvtrader_pipelines.storage.views.publishing import publish

    home = Home.at(folder)
    with _show_files("restoring", quiet=as_json) as on_file:
        manifest = restore_backup(file, home.root, on_file)
    store = Store(home)
    closed = close_copied_runs(store)
    publish(store)
    if as_json:
        document = RestoredHome(
            home=home.root, n_files=len(manifest.files), interrupted_runs=tuple(closed), outside=manifest.outside
        )
        write_json(document.model_dump(mode="json"))
        return
    print_line(f"{len(manifest.files):,} files of {manifest.root} as of {manifest.created_at:%Y-%m-%d %H:%M:%S}Z")
    for part in manifest.outside:
        print_line(f"not in the backup: {part}", "yellow")
    print_line(f"export NVTRADER_HOME={shlex.quote(str(home.root))}")


@contextmanager
def _show_files(action: str, *, quiet: bool) -> "Iterator[OnFile]":
    """Yield a callback that shows progress by file on the terminal, or nothing if `quiet`."""
    console = plain_console(stderr=True, quiet=quiet)
    n_files, n_bytes = 0, 0
    with console.status(action) as status:

        def on_file(name: str, size: int) -> None:
            nonlocal n_files, n_bytes
            n_files, n_bytes = n_files + 1, n_bytes + size
            status.update(f"{action}: {n_files:,} files, {n_bytes / 2**20:,.0f} MiB, {name}")

        yield on_file
