"""The column `said` of publications is `text`."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0010"


def upgrade() -> None:
    op.execute("ALTER TABLE publication RENAME COLUMN said TO text")


def downgrade() -> None:
    op.execute("ALTER TABLE publication RENAME COLUMN text TO said")
