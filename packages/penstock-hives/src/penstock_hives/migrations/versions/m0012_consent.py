"""Invitations to accounts, and failed sign-ins, which all processes count together.

Nobody belongs to an account before they have accepted an invitation. Of a login that failed only a
digest is kept, for as long as failures count.
"""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE account_invitation (
            account_id bigint NOT NULL REFERENCES account ON DELETE CASCADE,
            user_id bigint NOT NULL REFERENCES app_user ON DELETE CASCADE,
            role text NOT NULL CHECK (role IN ('account_member', 'account_admin')),
            invited_by bigint REFERENCES app_user ON DELETE SET NULL,
            created_at timestamptz NOT NULL,
            expires_at timestamptz NOT NULL,
            PRIMARY KEY (account_id, user_id)
        );
        COMMENT ON TABLE account_invitation IS
            'Who has been asked to join a business, and has not answered.';
        CREATE INDEX account_invitation_user ON account_invitation (user_id);

        CREATE TABLE sign_in_failure (
            login_hash bytea NOT NULL,
            at timestamptz NOT NULL
        );
        COMMENT ON TABLE sign_in_failure IS
            'Sign-ins at the local issuer that failed lately; those under way are among them.';
        CREATE INDEX sign_in_failure_login ON sign_in_failure (login_hash, at);
        CREATE INDEX sign_in_failure_age ON sign_in_failure (at);
    """)


def downgrade() -> None:
    op.execute("DROP TABLE account_invitation, sign_in_failure")
