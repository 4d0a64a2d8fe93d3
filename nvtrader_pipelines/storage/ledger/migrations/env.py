"""Alembic environment, on the connection and in the transaction of the ledger."""

from alembic import context

from nvtrader_pipelines.storage.ledger.schema import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"], target_metadata=METADATA, version_table=VERSION_TABLE
)
context.run_migrations()
