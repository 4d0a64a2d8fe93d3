"""Digest of a run's manifest, by which a change of the manifest by hand is detected."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column; existing runs have null until they run again."""
    op.add_column("runs", sa.Column("policies_sha256", sa.Text))
