"""Jobs that wait for a time or for other jobs, schedules, unique keys, owners, retention."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"

_STATES = "'waiting', 'running', 'retrying', 'done', 'failed', 'cancelled', 'refused'"


def upgrade() -> None:
    op.execute(f"""
        ALTER TABLE job DROP CONSTRAINT job_state_check;
        ALTER TABLE job ADD CONSTRAINT job_state_check
            CHECK (state IN ('scheduled', {_STATES}));
        ALTER TABLE job ADD COLUMN owner text;
        ALTER TABLE job ADD COLUMN unique_key text;
        ALTER TABLE job ADD COLUMN keep_seconds double precision;
        CREATE INDEX job_of_unique_key ON job (unique_key) WHERE unique_key IS NOT NULL;
        CREATE INDEX job_of_owner ON job (owner, submitted_at DESC);
        CREATE INDEX job_of_worker ON job (worker) WHERE state = 'running';
        COMMENT ON COLUMN job.owner IS 'Who submitted it, where the API or the pages know.';
        COMMENT ON COLUMN job.unique_key IS 'One job of a key at a time.';
        COMMENT ON COLUMN job.keep_seconds IS 'How long it is stored after its last change.';

        CREATE TABLE job_pending (
            job_id text PRIMARY KEY REFERENCES job ON DELETE CASCADE,
            body bytea NOT NULL,
            template boolean NOT NULL DEFAULT false,
            options jsonb NOT NULL DEFAULT '{{}}',
            due_at timestamptz,
            after text[] NOT NULL DEFAULT '{{}}',
            run_when text NOT NULL DEFAULT 'done' CHECK (run_when IN ('done', 'ended')),
            claimed_at timestamptz
        );
        CREATE INDEX job_pending_due ON job_pending (due_at);
        COMMENT ON TABLE job_pending IS 'Requests that are not yet published.';

        CREATE TABLE job_schedule (
            id text PRIMARY KEY,
            body bytea NOT NULL,
            every double precision,
            cron text,
            zone text NOT NULL DEFAULT 'UTC',
            options jsonb NOT NULL DEFAULT '{{}}',
            next_at timestamptz NOT NULL,
            paused boolean NOT NULL DEFAULT false,
            last_job text,
            owner text NOT NULL DEFAULT ''
        );
        CREATE INDEX job_schedule_next ON job_schedule (next_at) WHERE NOT paused;
        COMMENT ON TABLE job_schedule IS 'Jobs that are submitted again and again.';
    """)


def downgrade() -> None:
    op.execute(f"""
        DROP TABLE job_schedule, job_pending;
        DELETE FROM job WHERE state = 'scheduled';
        ALTER TABLE job DROP CONSTRAINT job_state_check;
        ALTER TABLE job ADD CONSTRAINT job_state_check CHECK (state IN ({_STATES}));
        ALTER TABLE job DROP COLUMN owner, DROP COLUMN unique_key, DROP COLUMN keep_seconds;
    """)
