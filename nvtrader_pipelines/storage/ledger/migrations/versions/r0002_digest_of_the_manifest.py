"""The digest of what a run was sealed with, so that a manifest changed by hand is known by it."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column; runs of before have none until they are run again."""
    op.add_column("runs", sa.Column("policies_sha256", sa.Text))
