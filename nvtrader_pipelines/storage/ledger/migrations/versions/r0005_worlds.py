"""Kind of a version: an experiment, or a world."""

import sqlalchemy as sa
from alembic import op

revision = "0.6.0"
down_revision = "0.5.0"


def upgrade() -> None:
    """Add the column."""
    op.add_column("versions", sa.Column("kind", sa.Text, nullable=False, server_default="experiment"))
