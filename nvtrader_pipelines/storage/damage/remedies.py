"""Remedies for damaged files, as ends of sentences."""

import shlex

from nvtrader_pipelines.storage.home import Home

REPAIR = "`nvtrader doctor --repair` rebuilds it"


def rebuild_remedy(home: Home) -> str:
    """Remedy for a damaged file that cannot be rebuilt, as the end of a sentence."""
    folder = shlex.quote(str(home.warehouse))
    return (
        "restore the home from a backup, or build the warehouse again from data/, without replays and archived names: "
        f"`rm -r {folder} && nvtrader materialize`"
    )
