"""`nvtrader guards`: compare the guards of a weight pipeline with none."""

from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.operations.guards import Guards

app = family_app(Guards, "guard_page")
