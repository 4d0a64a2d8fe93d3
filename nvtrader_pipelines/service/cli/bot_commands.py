"""`nvtrader bots`: policies that trade accounts on schedules."""

from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.operations.bots import Bots

app = family_app(Bots, "bot_pages")
