"""The attempts and time limits of a job, for when it is submitted again."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.execute("""
        ALTER TABLE job ADD COLUMN max_attempts integer;
        ALTER TABLE job ADD COLUMN soft_seconds double precision;
        ALTER TABLE job ADD COLUMN hard_seconds double precision;
        COMMENT ON COLUMN job.max_attempts IS 'If the request says so; else the worker decides.';
        COMMENT ON COLUMN job.soft_seconds IS 'After so long the job is asked to end.';
        COMMENT ON COLUMN job.hard_seconds IS 'After so long it is ended.';
    """)


def downgrade() -> None:
    op.execute("""
        ALTER TABLE job DROP COLUMN max_attempts, DROP COLUMN soft_seconds,
            DROP COLUMN hard_seconds;
    """)
