"""Indexes for the daily limits: what an account or a person has done lately."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"

_UPGRADE = """
    CREATE INDEX audit_log_account_action ON audit_log (account_id, action, entity, at);
    CREATE INDEX audit_log_user_action ON audit_log (user_id, action, entity, at);
    CREATE INDEX user_message_author ON user_message (author_id, created_at);
"""
_DOWNGRADE = """
    DROP INDEX audit_log_account_action, audit_log_user_action, user_message_author;
"""


def upgrade() -> None:
    op.execute(_UPGRADE)


def downgrade() -> None:
    op.execute(_DOWNGRADE)
