"""Looks of search sessions at their sealed windows."""

import sqlalchemy as sa
from alembic import op

revision = "0.4.0"
down_revision = "0.3.0"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "looks",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("spec_hash", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("symbols", sa.Text, nullable=False),
        sa.Column("window_first", sa.Date, nullable=False),
        sa.Column("window_last", sa.Date, nullable=False),
        sa.Column("look", sa.Integer, nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
    )
