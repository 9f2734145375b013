"""The table of announced deals gets a plain name; webhooks may get changes of sensors."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"

_UPGRADE = """
    ALTER TABLE deal_told RENAME TO deal_announcement;
    ALTER INDEX deal_told_pkey RENAME TO deal_announcement_pkey;
    COMMENT ON TABLE deal_announcement IS
        'Which events of a deal (new, expiring) were announced to the users who want to know.';

    ALTER TABLE webhook DROP CONSTRAINT webhook_events_check;
    ALTER TABLE webhook ADD CONSTRAINT webhook_events_check CHECK (cardinality(events) > 0
        AND events <@ ARRAY['occupancy', 'sensor_alert', 'sensor', 'deal']);
"""
_DOWNGRADE = """
    UPDATE webhook SET events = array_remove(events, 'sensor') WHERE events <> ARRAY['sensor'];
    DELETE FROM webhook WHERE events = ARRAY['sensor'];
    ALTER TABLE webhook DROP CONSTRAINT webhook_events_check;
    ALTER TABLE webhook ADD CONSTRAINT webhook_events_check CHECK (cardinality(events) > 0
        AND events <@ ARRAY['occupancy', 'sensor_alert', 'deal']);

    ALTER INDEX deal_announcement_pkey RENAME TO deal_told_pkey;
    ALTER TABLE deal_announcement RENAME TO deal_told;
"""


def upgrade() -> None:
    op.execute(_UPGRADE)


def downgrade() -> None:
    op.execute(_DOWNGRADE)
