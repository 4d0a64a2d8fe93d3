"""One process with what training imports, of which the workers of several commands are forks, not one for each."""

from multiprocessing import forkserver, get_context

from nvtrader_pipelines.policies import training


def share_forkserver() -> None:
    """Begin it, for the forks of this process too, which would begin their own since they are not its parent."""
    get_context("forkserver").set_forkserver_preload(list(training.PRELOADED))
    forkserver.ensure_running()
    forkserver._forkserver.ensure_running = lambda: None
