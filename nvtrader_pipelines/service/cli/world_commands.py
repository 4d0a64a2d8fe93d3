"""`nvtrader worlds`: experiments in worlds other than portfolios."""

from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.operations.worlds import Worlds

app = family_app(Worlds, "world_pages")
