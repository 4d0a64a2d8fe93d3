"""Times at which names of experiments were archived and runs deleted."""

import sqlalchemy as sa
from alembic import op

revision = "0.3.0"
down_revision = "0.2.0"


def upgrade() -> None:
    """Add the columns, null for all rows so far."""
    op.add_column("specs", sa.Column("archived_at", sa.DateTime(timezone=True)))
    op.add_column("runs", sa.Column("deleted_at", sa.DateTime(timezone=True)))
