"""Page of a search of the corpora."""

import json

import polars as pl

from nvtrader_pipelines.service.cli.output import print_line


def print_documents(documents: pl.DataFrame) -> None:
    """Print the documents found, best first, each text in quotes."""
    if documents.is_empty():
        print_line("no document has a word of the query; `nvtrader corpora list` shows the corpora and their days")
    for row in documents.iter_rows(named=True):
        print_line(f"{row['corpus']} {row['id']}, known from {row['known_from']}, score {row['score']:.2f}", "bold")
        print_line(f"  {json.dumps(row['text'], ensure_ascii=False)}")


PAGES = {"search": lambda answer: print_documents(answer.document)}
