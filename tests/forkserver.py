"""Fork server shared by commands, so that training workers need no imports of their own."""

from multiprocessing import forkserver, get_context

from nvtrader_pipelines.policies import training


def share_forkserver() -> None:
    """Start the fork server; forks of this process use it instead of starting their own."""
    get_context("forkserver").set_forkserver_preload(list(training.PRELOADED))
    forkserver.ensure_running()
    forkserver._forkserver.ensure_running = lambda: None
