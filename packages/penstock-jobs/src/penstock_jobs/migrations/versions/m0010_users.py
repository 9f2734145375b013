"""Users of the API and the pages, and the audit log."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE job_user (
            name text PRIMARY KEY,
            password_hash text NOT NULL,
            role text NOT NULL CHECK (role IN ('submitter', 'viewer', 'operator')),
            created_at timestamptz NOT NULL DEFAULT now()
        );
        CREATE TABLE job_token (
            digest bytea PRIMARY KEY,
            user_name text NOT NULL REFERENCES job_user ON DELETE CASCADE,
            label text NOT NULL DEFAULT '',
            created_at timestamptz NOT NULL DEFAULT now()
        );
        CREATE TABLE job_session (
            digest bytea PRIMARY KEY,
            user_name text NOT NULL REFERENCES job_user ON DELETE CASCADE,
            expires_at timestamptz NOT NULL
        );
        CREATE TABLE job_audit (
            number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            at timestamptz NOT NULL DEFAULT now(),
            who text NOT NULL,
            action text NOT NULL,
            job text NOT NULL DEFAULT '',
            detail text NOT NULL DEFAULT ''
        );
        CREATE INDEX job_audit_of_job ON job_audit (job) WHERE job <> '';
        COMMENT ON TABLE job_user IS 'Users of the API and the pages.';
        COMMENT ON TABLE job_token IS 'Access tokens of users; only digests are stored.';
        COMMENT ON TABLE job_session IS 'Sessions of the pages; only digests are stored.';
        COMMENT ON TABLE job_audit IS 'Who submitted, saw, cancelled or changed what.';
    """)


def downgrade() -> None:
    op.execute("DROP TABLE job_audit, job_session, job_token, job_user")
