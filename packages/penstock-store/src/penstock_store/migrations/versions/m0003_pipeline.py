"""Tables of the pipeline: applied batches, dead letter counts, the schema of staging tables."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE pipeline_batch (
            flow text NOT NULL CHECK (flow <> ''),
            batch_id bigint NOT NULL,
            rows bigint NOT NULL CHECK (rows >= 0),
            applied_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (flow, batch_id)
        );
        COMMENT ON TABLE pipeline_batch IS
            'Batches that are in the tables: committed with what they changed, never twice.';

        CREATE TABLE dead_letter_count (
            day date NOT NULL,
            stream text NOT NULL,
            reason text NOT NULL,
            count bigint NOT NULL CHECK (count >= 0),
            last_at timestamptz NOT NULL,
            PRIMARY KEY (day, stream, reason)
        );
        COMMENT ON TABLE dead_letter_count IS
            'Messages that could not be used, by the UTC day they came; they are kept in the lake.';

        CREATE SCHEMA staging;
        COMMENT ON SCHEMA staging IS
            'Rows of batches that are not applied yet. Its tables come and go.';
    """)


def downgrade() -> None:
    op.execute("DROP SCHEMA staging CASCADE")
    op.execute("DROP TABLE dead_letter_count")
    op.execute("DROP TABLE pipeline_batch")
