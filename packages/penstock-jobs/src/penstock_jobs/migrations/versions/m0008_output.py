"""What jobs print while they run."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE job_output (
            job_id text NOT NULL REFERENCES job ON DELETE CASCADE,
            run integer NOT NULL,
            attempt integer NOT NULL,
            start bigint NOT NULL,
            text text NOT NULL,
            PRIMARY KEY (job_id, run, attempt, start)
        );
        COMMENT ON TABLE job_output IS 'Output of a job''s program, in pieces.';
        COMMENT ON COLUMN job_output.start IS 'Characters of output before it, in this attempt.';
    """)


def downgrade() -> None:
    op.execute("DROP TABLE job_output")
