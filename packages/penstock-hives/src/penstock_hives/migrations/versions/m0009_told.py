"""Sign-ins, payments and alerts as they are kept now, and what else the nights find out.

What a provider has said of a subscription is folded anew with each event, so events keep what was
read from them. Somebody may well pay one provider twice; that is theirs to settle, and not a reason
to lose what was paid.
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"

_TABLES = ("deal_told", "hive_comparison", "deal_effect", "feedback_day")


def upgrade() -> None:
    op.execute("""
        ALTER TABLE refresh_token ADD COLUMN signed_in_at timestamptz NOT NULL DEFAULT now();
        COMMENT ON COLUMN refresh_token.signed_in_at IS 'When a password was last given for it.';

        ALTER TABLE payment_event
            ADD COLUMN ref text,
            ADD COLUMN related text,
            ADD COLUMN facts jsonb NOT NULL DEFAULT '{}';
        CREATE INDEX payment_event_ref ON payment_event (provider, ref) WHERE ref IS NOT NULL;
        CREATE INDEX payment_event_related ON payment_event (provider, related)
            WHERE related IS NOT NULL;
        COMMENT ON COLUMN payment_event.ref IS 'The provider''s id of the subscription.';
        COMMENT ON COLUMN payment_event.related IS
            'The payment it is about, by which a subscription that is not named is found.';
        COMMENT ON COLUMN payment_event.facts IS
            'What was read from it: whose it is, how it stands, what was paid.';

        DROP INDEX subscription_current_user;
        DROP INDEX subscription_current_account;
        COMMENT ON TABLE subscription IS
            'Of one user or of one account; several that hold at a time are merged.';
    """)
    op.execute("""
        CREATE TABLE deal_told (
            deal_id bigint NOT NULL REFERENCES deal ON DELETE CASCADE,
            mark text NOT NULL CHECK (mark ~ '^(new|[0-9]+h)$'),
            at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (deal_id, mark)
        );
        COMMENT ON TABLE deal_told IS
            'What of a deal has been told to all who wanted to know.';

        CREATE INDEX notification_day ON notification (user_id, created_at);

        CREATE FUNCTION tell_definitions() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_notify('notification_def', d.id::text)
            FROM user_notification_def d
            WHERE d.user_id = coalesce(NEW.user_id, OLD.user_id) AND d.kind LIKE '%deal%';
            RETURN NULL;
        END $$;
        COMMENT ON FUNCTION tell_definitions IS
            'Tells who evaluates alerts that what some definitions follow has changed.';
        CREATE TRIGGER told AFTER INSERT OR UPDATE OR DELETE ON deal_preference
            FOR EACH ROW EXECUTE FUNCTION tell_definitions();
        CREATE TRIGGER told_new AFTER INSERT ON user_hive
            FOR EACH ROW WHEN (NEW.favourite) EXECUTE FUNCTION tell_definitions();
        CREATE TRIGGER told_changed AFTER UPDATE ON user_hive
            FOR EACH ROW WHEN (NEW.favourite <> OLD.favourite) EXECUTE FUNCTION tell_definitions();
        CREATE TRIGGER told_gone AFTER DELETE ON user_hive
            FOR EACH ROW WHEN (OLD.favourite) EXECUTE FUNCTION tell_definitions();

        CREATE FUNCTION arm_again() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            UPDATE notification_state SET armed = true WHERE definition_id = NEW.id;
            RETURN NULL;
        END $$;
        COMMENT ON FUNCTION arm_again IS 'A threshold that was changed has not been crossed yet.';
        CREATE TRIGGER arm_again
            AFTER UPDATE OF kind, hive_id, threshold, unit, enabled ON user_notification_def
            FOR EACH ROW EXECUTE FUNCTION arm_again();

        CREATE FUNCTION tell_delivery() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_notify('notification_delivery', '');
            RETURN NULL;
        END $$;
        COMMENT ON FUNCTION tell_delivery IS 'Wakes who sends pushes.';
        CREATE TRIGGER told AFTER INSERT ON notification_delivery
            FOR EACH STATEMENT EXECUTE FUNCTION tell_delivery();
    """)
    op.execute("""
        CREATE TABLE hive_comparison (
            hive_id bigint NOT NULL REFERENCES hive ON DELETE CASCADE,
            day date NOT NULL,
            window_days integer NOT NULL CHECK (window_days > 0),
            visits_now double precision,
            visits_before double precision,
            occupancy_now double precision,
            occupancy_before double precision,
            peers integer NOT NULL DEFAULT 0,
            peer_visits double precision,
            rank integer,
            made_at timestamptz NOT NULL,
            PRIMARY KEY (hive_id, day, window_days)
        );
        COMMENT ON TABLE hive_comparison IS
            'The days up to this one beside those before them, and beside hives of the same type.';
        COMMENT ON COLUMN hive_comparison.visits_now IS 'A day, on days that were heard of.';
        COMMENT ON COLUMN hive_comparison.peer_visits IS 'The median of the others of its type.';
        COMMENT ON COLUMN hive_comparison.rank IS 'Among all of its type; the busiest is 1.';

        CREATE TABLE deal_effect (
            deal_id bigint PRIMARY KEY REFERENCES deal ON DELETE CASCADE,
            day date NOT NULL,
            days integer NOT NULL CHECK (days >= 0),
            visits double precision,
            expected double precision,
            lift double precision,
            opened integer NOT NULL DEFAULT 0,
            redeemed integer NOT NULL DEFAULT 0,
            made_at timestamptz NOT NULL
        );
        COMMENT ON TABLE deal_effect IS
            'Visits a day while a deal ran beside those of the same weekdays before it.';
        COMMENT ON COLUMN deal_effect.lift IS 'What came on top, as a share of what was expected.';

        CREATE TABLE feedback_day (
            hive_id bigint NOT NULL REFERENCES hive ON DELETE CASCADE,
            day date NOT NULL,
            messages integer NOT NULL,
            positive integer NOT NULL,
            negative integer NOT NULL,
            sentiment double precision NOT NULL CHECK (sentiment BETWEEN -1 AND 1),
            model text NOT NULL,
            made_at timestamptz NOT NULL,
            PRIMARY KEY (hive_id, day)
        );
        COMMENT ON TABLE feedback_day IS 'How people have spoken of a hive on a day.';
    """)


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.execute(f"DROP TABLE {table}")
    op.execute("""
        DROP TRIGGER told ON notification_delivery;
        DROP FUNCTION tell_delivery();
        DROP TRIGGER arm_again ON user_notification_def;
        DROP FUNCTION arm_again();
        DROP TRIGGER told ON deal_preference;
        DROP TRIGGER told_new ON user_hive;
        DROP TRIGGER told_changed ON user_hive;
        DROP TRIGGER told_gone ON user_hive;
        DROP FUNCTION tell_definitions();
        DROP INDEX notification_day;
        CREATE UNIQUE INDEX subscription_current_user ON subscription (user_id, provider)
            WHERE status IN ('active', 'trial', 'past_due') AND user_id IS NOT NULL;
        CREATE UNIQUE INDEX subscription_current_account ON subscription (account_id, provider)
            WHERE status IN ('active', 'trial', 'past_due') AND account_id IS NOT NULL;
        COMMENT ON TABLE subscription IS
            'Of one user or of one account; of each provider one is current.';
        ALTER TABLE payment_event DROP COLUMN ref, DROP COLUMN related, DROP COLUMN facts;
        ALTER TABLE refresh_token DROP COLUMN signed_in_at;
    """)
