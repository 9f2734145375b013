"""Times of alerts, codes of redeemed deals, addresses to confirm, badges."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"

_UPGRADE = """
    ALTER TABLE user_notification_def
        ADD COLUMN weekdays smallint[] NOT NULL DEFAULT '{}'
            CHECK (weekdays <@ ARRAY[0, 1, 2, 3, 4, 5, 6]::smallint[]),
        ADD COLUMN active_from time,
        ADD COLUMN active_to time,
        ADD CONSTRAINT user_notification_def_active
            CHECK ((active_from IS NULL) = (active_to IS NULL));
    COMMENT ON COLUMN user_notification_def.weekdays IS
        'On which days of the hive it fires, Monday is 0; none: any.';
    COMMENT ON COLUMN user_notification_def.active_from IS
        'From when on it fires, by the clock of the hive.';

    ALTER TABLE credential
        ADD COLUMN new_login text CHECK (new_login <> '' AND new_login = lower(new_login)),
        ADD COLUMN new_login_hash bytea,
        ADD COLUMN new_login_expires_at timestamptz,
        ADD CONSTRAINT credential_new_login
            CHECK (num_nulls(new_login, new_login_hash, new_login_expires_at) IN (0, 3));
    COMMENT ON COLUMN credential.new_login IS 'An address that is not confirmed yet.';

    ALTER TABLE hive ADD COLUMN badge boolean NOT NULL DEFAULT false;
    COMMENT ON COLUMN hive.badge IS 'Whether other pages may embed its occupancy.';

    CREATE TABLE deal_redemption (
        code text PRIMARY KEY CHECK (code ~ '^[A-Z0-9]{8}$'),
        deal_id bigint NOT NULL REFERENCES deal ON DELETE CASCADE,
        user_id bigint REFERENCES app_user ON DELETE SET NULL,
        redeemed_at timestamptz NOT NULL DEFAULT now(),
        verified_at timestamptz,
        verified_by bigint REFERENCES app_user ON DELETE SET NULL,
        UNIQUE (deal_id, user_id)
    );
    COMMENT ON TABLE deal_redemption IS 'A code that a user shows and the business verifies once.';
    CREATE INDEX deal_redemption_user ON deal_redemption (user_id, redeemed_at DESC);
"""
_DOWNGRADE = """
    DROP TABLE deal_redemption;
    ALTER TABLE hive DROP COLUMN badge;
    ALTER TABLE credential
        DROP COLUMN new_login, DROP COLUMN new_login_hash, DROP COLUMN new_login_expires_at;
    ALTER TABLE user_notification_def
        DROP COLUMN weekdays, DROP COLUMN active_from, DROP COLUMN active_to;
"""


def upgrade() -> None:
    op.execute(_UPGRADE)


def downgrade() -> None:
    op.execute(_DOWNGRADE)
