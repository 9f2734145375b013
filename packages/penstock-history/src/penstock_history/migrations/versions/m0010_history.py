"""Stored publications, requests and answered queries."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = None

_TABLES = (
    "history_request",
    "history_progress",
    "history_answered",
    "history_attribute",
    "publication",
    "publication_number",
    "publication_text",
)


def upgrade() -> None:
    op.execute("""
        CREATE TABLE history_request (
            content_spec text PRIMARY KEY,
            class text NOT NULL,
            requested_at timestamptz NOT NULL DEFAULT now()
        );
        COMMENT ON TABLE history_request IS 'Which publications are kept, in the language.';

        CREATE TABLE history_progress (
            stream text PRIMARY KEY,
            next_offset bigint NOT NULL
        );
        COMMENT ON TABLE history_progress IS 'How far each stream has been read.';

        CREATE TABLE history_answered (
            subscription text PRIMARY KEY,
            answered_at timestamptz NOT NULL DEFAULT now()
        );
        COMMENT ON TABLE history_answered IS 'Questions that are not to be answered again.';

        CREATE TABLE history_attribute (
            class text NOT NULL,
            attribute text NOT NULL,
            is_text boolean NOT NULL,
            PRIMARY KEY (class, attribute, is_text)
        );
        COMMENT ON TABLE history_attribute IS 'What publications of a class came with.';
    """)
    op.execute("""
        CREATE TABLE publication (
            id bigint PRIMARY KEY,
            message_id text NOT NULL,
            class text NOT NULL,
            at timestamptz NOT NULL,
            said bytea NOT NULL,
            payload bytea NOT NULL
        );
        CREATE INDEX publication_class ON publication (class, at);
        COMMENT ON TABLE publication IS 'What was kept; the id is its offset in the stream.';
        COMMENT ON COLUMN publication.said IS 'The publication in the language, as UTF-8.';

        CREATE TABLE publication_number (
            publication_id bigint NOT NULL REFERENCES publication ON DELETE CASCADE,
            attribute text NOT NULL,
            value numeric NOT NULL,
            PRIMARY KEY (publication_id, attribute)
        );
        CREATE INDEX publication_number_value ON publication_number (attribute, value);
        COMMENT ON TABLE publication_number IS 'The numbers in what was kept, by attribute.';

        CREATE TABLE publication_text (
            publication_id bigint NOT NULL REFERENCES publication ON DELETE CASCADE,
            attribute text NOT NULL,
            value bytea NOT NULL,
            PRIMARY KEY (publication_id, attribute)
        );
        CREATE INDEX publication_text_value
            ON publication_text (attribute, substring(value FROM 1 FOR 200));
        COMMENT ON TABLE publication_text IS 'The texts in what was kept, by attribute.';
        COMMENT ON COLUMN publication_text.value IS 'UTF-8: ordered by code point, may hold NUL.';
    """)


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.execute(f"DROP TABLE {table}")
