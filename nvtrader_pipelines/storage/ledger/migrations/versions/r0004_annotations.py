"""Tags and notes that people give to runs."""

import sqlalchemy as sa
from alembic import op

revision = "0.5.0"
down_revision = "0.4.0"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "annotations",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.run_id"), primary_key=True),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
    )
