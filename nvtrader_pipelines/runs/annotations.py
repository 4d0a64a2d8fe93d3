"""Tags and notes that people give to runs; they change neither identity nor results."""

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.storage.store import Store


class Annotation(Document):
    """Tags and note of a run."""

    run_id: str
    tags: str = ""  # separated by a comma and a blank
    note: str = ""


def read_annotation(store: Store, run_id: str) -> Annotation:
    """Read the annotation of a run, an empty one by default."""
    rows = store.ledger.annotations().filter(run_id=run_id).to_dicts()
    return Annotation(**rows[0]) if rows else Annotation(run_id=run_id)


def annotate_run(store: Store, run_id: str, tags: str | None, note: str | None) -> Annotation:
    """Replace the tags of a run, its note, or both; None leaves one, and an empty text removes it."""
    names = None if tags is None else dict.fromkeys(filter(None, (" ".join(tag.split()) for tag in tags.split(","))))
    given = {"tags": names if names is None else ", ".join(names), "note": note if note is None else note.strip()}
    store.ledger.annotate(run_id, {name: value for name, value in given.items() if value is not None})
    return read_annotation(store, run_id)
