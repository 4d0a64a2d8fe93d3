"""What alembic runs: the revisions, on the connection and inside the transaction that the ledger opened."""

from alembic import context

from nvtrader_pipelines.storage.ledger.schema import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"], target_metadata=METADATA, version_table=VERSION_TABLE
)
context.run_migrations()
