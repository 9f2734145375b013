"""What was kept, in PostgreSQL: entered once, however often it is read from the stream.

Each batch of the stream is one transaction, together with how far the stream has been read; so a
historian that was killed goes on where it was, and nothing is entered twice. Values are indexed by
attribute, and questions are answered from that (`selecting.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.content import parse_publication, satisfies
from penstock.history.kept import Kept
from penstock.history.questions import Question
from penstock.history.selecting import held, select
from penstock.store import Connection, Database

#: Rows of an answer fetched at a time, so that one of any length fits.
_FETCHED: Final = 1000
#: What PostgreSQL has no place for in text.
_NUL: Final = "\0"


class Archive:
    """The tables `publication` and its neighbours. Any number of threads may share it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # Entering.

    def next_offset(self, stream: str) -> int:
        """Where reading the stream goes on."""
        found = self._database.rows(
            "SELECT next_offset FROM history_progress WHERE stream = %s", (stream,)
        )
        return int(found[0]["next_offset"]) if found else 0

    def enter(self, stream: str, batch: Sequence[Kept], next_offset: int) -> list[Kept]:
        """Enter what came, up to an offset. What cannot be entered is given back.

        Those are publications with a NUL in the name of their class or of an attribute.
        """
        good = [kept for kept in batch if _enterable(kept)]
        with self._database.transaction() as connection:
            _insert(connection, good)
            connection.execute(
                "INSERT INTO history_progress VALUES (%s, %s) ON CONFLICT (stream) DO UPDATE "
                "SET next_offset = greatest(history_progress.next_offset, excluded.next_offset)",
                (stream, next_offset),
            )
        return [kept for kept in batch if not _enterable(kept)]

    def forget(self, age: timedelta) -> int:
        """Take out what is older than that. How many there were."""
        return self._database.execute("DELETE FROM publication WHERE at < now() - %s", (age,))

    # Requests.

    def request(self, spec: str, class_name: str) -> bool:
        """Remember what is to be kept; False if it was known."""
        return bool(
            self._database.execute(
                "INSERT INTO history_request (content_spec, class) VALUES (%s, %s) "
                "ON CONFLICT DO NOTHING",
                (spec, class_name),
            )
        )

    def withdraw(self, spec: str) -> bool:
        """Forget a request; what was kept for it stays."""
        return bool(
            self._database.execute("DELETE FROM history_request WHERE content_spec = %s", (spec,))
        )

    def requests(self) -> list[str]:
        rows = self._database.rows("SELECT content_spec FROM history_request ORDER BY requested_at")
        return [row["content_spec"] for row in rows]

    def attributes(self) -> list[tuple[str, str, bool]]:
        """Each class with each attribute it came with, and whether that was a text."""
        rows = self._database.rows("SELECT class, attribute, is_text FROM history_attribute")
        return [(row["class"], row["attribute"], row["is_text"]) for row in rows]

    # Answering.

    def answer(self, question: Question) -> Iterator[Kept]:
        """What satisfies the question, in the order it was kept."""
        statement, parameters = select(question)
        with (
            self._database.transaction() as connection,
            connection.cursor(name="answer") as cursor,
        ):
            cursor.itersize = _FETCHED
            cursor.execute(statement, parameters)
            for row in cursor:
                said = parse_publication(bytes(row["said"]).decode())
                publication = replace(said, time=row["at"])
                if satisfies(publication, question.wanted):
                    payload = bytes(row["payload"])
                    yield Kept(row["id"], row["message_id"], row["at"], publication, payload)

    def answered(self, subscription: str) -> bool:
        """Whether the question in this subscription has its answer, all of it."""
        statement = "SELECT FROM history_answered WHERE subscription = %s"
        return bool(self._database.rows(statement, (subscription,)))

    def end_answer(self, subscription: str) -> None:
        self._database.execute(
            "INSERT INTO history_answered (subscription) VALUES (%s) ON CONFLICT DO NOTHING",
            (subscription,),
        )

    def end_question(self, subscription: str) -> None:
        """Nobody asks any more: the same may be asked again."""
        self._database.execute(
            "DELETE FROM history_answered WHERE subscription = %s", (subscription,)
        )

    def span(self) -> tuple[int, datetime | None, datetime | None]:
        """How many there are, and from when to when."""
        (row,) = self._database.rows(
            "SELECT count(*) AS count, min(at) AS first, max(at) AS last FROM publication"
        )
        return row["count"], row["first"], row["last"]


def _enterable(kept: Kept) -> bool:
    return _NUL not in kept.publication.class_name and not any(_NUL in name for name in kept.values)


def _insert(connection: Connection, batch: Iterable[Kept]) -> None:
    rows: list[tuple[Any, ...]] = []
    numbers: list[tuple[Any, ...]] = []
    texts: list[tuple[Any, ...]] = []
    attributes: set[tuple[str, str, bool]] = set()
    for kept in batch:
        said = kept.text.encode()
        name = kept.publication.class_name
        rows.append((kept.offset, kept.id.replace(_NUL, ""), name, kept.time, said, kept.payload))
        for attribute, value in kept.values.items():
            is_text = isinstance(value, str)
            attributes.add((name, attribute, is_text))
            (texts if is_text else numbers).append((kept.offset, attribute, held(value)))
    # Keys are in the order of the stream, so a batch that is entered again conflicts as a whole.
    for statement, values in (
        ("INSERT INTO publication VALUES (%s, %s, %s, %s, %s, %s)", rows),
        ("INSERT INTO publication_number VALUES (%s, %s, %s)", numbers),
        ("INSERT INTO publication_text VALUES (%s, %s, %s)", texts),
        ("INSERT INTO history_attribute VALUES (%s, %s, %s)", sorted(attributes)),
    ):
        if values:
            with connection.cursor() as cursor:
                cursor.executemany(f"{statement} ON CONFLICT DO NOTHING", values)
