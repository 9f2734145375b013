"""Matrices and versioned data sets."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE job_matrix (
            name text PRIMARY KEY,
            title text NOT NULL DEFAULT '',
            columns text[] NOT NULL
        );
        CREATE TABLE job_dataset (
            name text NOT NULL,
            version int NOT NULL CHECK (version > 0),
            matrix text NOT NULL,
            samples int NOT NULL,
            csv text NOT NULL,
            saved_by text NOT NULL DEFAULT '',
            saved_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (name, version)
        );
        COMMENT ON TABLE job_matrix IS 'The columns of data sets, beside those that are built in.';
        COMMENT ON TABLE job_dataset IS 'Data sets of users; a version never changes.';
    """)


def downgrade() -> None:
    op.execute("DROP TABLE job_dataset, job_matrix")
