"""`nvtrader workflows`: jobs that run one after the other."""

from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.operations.workflows import Workflows

app = family_app(Workflows)
