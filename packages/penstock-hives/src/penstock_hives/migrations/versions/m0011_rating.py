"""Stars that people give with their feedback, and an age by which old notes are found.

A rating says how what was written is meant, so it is what a model of sentiment learns from.
"""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0009"


def upgrade() -> None:
    op.execute("""
        ALTER TABLE user_message
            ADD COLUMN rating smallint CHECK (rating BETWEEN 1 AND 5),
            ADD CONSTRAINT user_message_rated_feedback CHECK (rating IS NULL OR type = 'feedback');
        COMMENT ON COLUMN user_message.rating IS 'Stars, from one to five, if any were given.';
        CREATE INDEX user_message_rated ON user_message (id DESC) WHERE rating IS NOT NULL;

        CREATE INDEX notification_age ON notification (created_at);
    """)


def downgrade() -> None:
    op.execute("""
        DROP INDEX notification_age;
        ALTER TABLE user_message DROP COLUMN rating;
    """)
