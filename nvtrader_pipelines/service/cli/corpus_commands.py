"""`nvtrader corpora`: texts on results, searched as of a day."""

from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.operations.corpora import Corpora

app = family_app(Corpora, "corpus_pages")
