"""`nvtrader alphas`: formulas that may predict returns."""

from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.operations.alphas import Alphas

app = family_app(Alphas, "alpha_pages")
