"""What the figures of a day and of a usual week are, as they are made now."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("""
        COMMENT ON COLUMN kpi_day.coverage IS
            'The share of its opening hours in which the hive was heard of.';
        COMMENT ON TABLE typical_week IS
            'What is usual, by local hour; Monday is 0. Medians of the last weeks'' hours.';
        COMMENT ON COLUMN typical_week.occupancy IS 'The mean over the hour.';
        COMMENT ON COLUMN typical_week.made_at IS 'The end of the last day that is in it.';
    """)


def downgrade() -> None:
    op.execute("""
        COMMENT ON COLUMN kpi_day.coverage IS 'The share of the day with all doors reporting.';
        COMMENT ON TABLE typical_week IS 'What is usual, by local hour; Monday is 0.';
        COMMENT ON COLUMN typical_week.occupancy IS NULL;
        COMMENT ON COLUMN typical_week.made_at IS NULL;
    """)
