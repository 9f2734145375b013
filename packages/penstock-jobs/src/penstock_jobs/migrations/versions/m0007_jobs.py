"""What became of jobs: where each stands, what happened to it, what was asked and answered.

Rows are written in batches by whoever listens to requests and responses, in the order in which they
are told or in another: `run` and `rank` say which of two is the later. Everything goes when its
time is over.
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = None


def upgrade() -> None:
    op.execute("""
        CREATE SEQUENCE job_revision;

        CREATE TABLE job (
            id text PRIMARY KEY CHECK (id <> ''),
            kind text NOT NULL,
            state text NOT NULL CHECK (state IN (
                'waiting', 'running', 'retrying', 'done', 'failed', 'cancelled', 'refused')),
            run integer NOT NULL DEFAULT 1,
            rank integer NOT NULL DEFAULT 0,
            priority integer NOT NULL DEFAULT 0,
            progress double precision NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 1),
            submitted_at timestamptz NOT NULL DEFAULT now(),
            changed_at timestamptz NOT NULL DEFAULT now(),
            started_at timestamptz,
            ends_at timestamptz,
            error text,
            attempts integer NOT NULL DEFAULT 0,
            worker text,
            digest bytea,
            summary jsonb NOT NULL DEFAULT '{}',
            revision bigint NOT NULL DEFAULT nextval('job_revision'),
            expires_at timestamptz NOT NULL DEFAULT now() + interval '30 days'
        );
        CREATE UNIQUE INDEX job_of_revision ON job (revision);
        CREATE INDEX job_newest ON job (submitted_at DESC, id);
        CREATE INDEX job_in_state ON job (state, submitted_at DESC);
        CREATE INDEX job_expires ON job (expires_at);
        COMMENT ON TABLE job IS 'A piece of work that was asked for.';
        COMMENT ON COLUMN job.run IS 'How often it was asked for; more than once by hand only.';
        COMMENT ON COLUMN job.rank IS
            'Orders what is told of a run: 0 waiting, 2n attempt n, 2n+1 waiting for the next, '
            'a million the end.';
        COMMENT ON COLUMN job.ends_at IS 'Expected while it runs; when it was, afterwards.';
        COMMENT ON COLUMN job.revision IS 'Rises with each change, in the order of commits.';

        CREATE TABLE job_event (
            job_id text NOT NULL REFERENCES job ON DELETE CASCADE,
            at timestamptz NOT NULL,
            state text NOT NULL,
            progress double precision NOT NULL DEFAULT 0,
            run integer NOT NULL,
            rank integer NOT NULL,
            text text NOT NULL DEFAULT '',
            PRIMARY KEY (job_id, run, rank)
        );
        COMMENT ON TABLE job_event IS 'When a job began to be in a state; once for each.';

        CREATE TABLE job_content (
            job_id text NOT NULL REFERENCES job ON DELETE CASCADE,
            what text NOT NULL CHECK (what IN ('request', 'response')),
            content_type text NOT NULL DEFAULT '',
            body bytea NOT NULL,
            PRIMARY KEY (job_id, what)
        );
        ALTER TABLE job_content ALTER COLUMN body SET STORAGE EXTERNAL;
        COMMENT ON TABLE job_content IS 'What was asked, and the final answer, as they travelled.';
    """)


def downgrade() -> None:
    op.execute("""
        DROP TABLE job_content, job_event, job;
        DROP SEQUENCE job_revision;
    """)
