"""What was kept, in PostgreSQL: entered once, however often it is read from the stream.

Each batch of the stream is one transaction, together with how far the stream has been read; so a
historian that was killed goes on where it was, and nothing is entered twice. Values are indexed by
attribute, and questions are answered from that (`select_statement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from psycopg.sql import SQL, Composed

from penstock.content import (
    Operator,
    Predicate,
    Variable,
    VariableType,
    parse_publication,
    satisfies,
)
from penstock.content.messages import Value
from penstock_history.publication import ArchivedPublication
from penstock_history.query import HistoryQuery
from penstock_store import Connection, Database

#: Rows of an answer fetched at a time, so that one of any length fits.
_FETCH_ROWS: Final = 1000
#: What PostgreSQL has no place for in text.
_NUL: Final = "\0"


class PublicationArchive:
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

    def enter(
        self, stream: str, batch: Sequence[ArchivedPublication], next_offset: int
    ) -> list[ArchivedPublication]:
        """Enter what came, up to an offset. What cannot be entered is given back.

        Those are publications with a NUL in the name of their class or of an attribute.
        """
        good = [archived for archived in batch if _is_storable(archived)]
        with self._database.transaction() as connection:
            _insert(connection, good)
            connection.execute(
                "INSERT INTO history_progress VALUES (%s, %s) ON CONFLICT (stream) DO UPDATE "
                "SET next_offset = greatest(history_progress.next_offset, excluded.next_offset)",
                (stream, next_offset),
            )
        return [archived for archived in batch if not _is_storable(archived)]

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

    def answer(self, query: HistoryQuery) -> Iterator[ArchivedPublication]:
        """What satisfies the question, in the order it was kept."""
        statement, parameters = select_statement(query)
        with (
            self._database.transaction() as connection,
            connection.cursor(name="answer") as cursor,
        ):
            cursor.itersize = _FETCH_ROWS
            cursor.execute(statement, parameters)
            for row in cursor:
                said = parse_publication(bytes(row["said"]).decode())
                publication = replace(said, time=row["at"])
                if satisfies(publication, query.wanted):
                    payload = bytes(row["payload"])
                    yield ArchivedPublication(
                        row["id"], row["message_id"], row["at"], publication, payload
                    )

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


def _is_storable(archived: ArchivedPublication) -> bool:
    return _NUL not in archived.publication.class_name and not any(
        _NUL in name for name in archived.values
    )


def _insert(connection: Connection, batch: Iterable[ArchivedPublication]) -> None:
    rows: list[tuple[Any, ...]] = []
    numbers: list[tuple[Any, ...]] = []
    texts: list[tuple[Any, ...]] = []
    attributes: set[tuple[str, str, bool]] = set()
    for archived in batch:
        said = archived.text.encode()
        name = archived.publication.class_name
        rows.append(
            (
                archived.offset,
                archived.id.replace(_NUL, ""),
                name,
                archived.time,
                said,
                archived.payload,
            )
        )
        for attribute, value in archived.values.items():
            is_text = isinstance(value, str)
            attributes.add((name, attribute, is_text))
            (texts if is_text else numbers).append(
                (archived.offset, attribute, stored_value(value))
            )
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


# A question in SQL: every predicate a condition, every value a bound parameter.
#
# Numbers are kept exactly, as `numeric`, and texts as their UTF-8 bytes, which are ordered as code
# points are and may hold anything. A predicate that compares with a variable asks for presence and
# type here; what variables mean together is decided on what was found (`archive.py`).

#: Texts are found by their beginnings: an index cannot hold more of a long one.
INDEXED_CHARACTERS: Final = 200

_COMPARISONS: Final = {
    Operator.EQ: "=",
    Operator.NEQ: "<>",
    Operator.STR_LT: "<",
    Operator.STR_LE: "<=",
    Operator.STR_GT: ">",
    Operator.STR_GE: ">=",
    Operator.EQUAL: "=",
    Operator.UNEQUAL: "<>",
    Operator.LESS: "<",
    Operator.LESS_EQUAL: "<=",
    Operator.GREATER: ">",
    Operator.GREATER_EQUAL: ">=",
}


def select_statement(query: HistoryQuery) -> tuple[Composed, list[Any]]:
    """The statement that finds what may be the answer, in the order it was kept."""
    conditions = [SQL("class = %s")]
    parameters: list[Any] = [query.wanted.class_name]
    for sign, time in ((">", query.after), ("<", query.before)):
        if time is not None:
            conditions.append(SQL(f"at {sign} %s"))
            parameters.append(time)
    for predicate in query.wanted.predicates:
        condition, values = _condition(predicate)
        table = "publication_text" if _is_text(predicate) else "publication_number"
        conditions.append(
            SQL(
                f"EXISTS (SELECT FROM {table} held WHERE held.publication_id = publication.id "
                f"AND held.attribute = %s{condition})"
            )
        )
        parameters += [predicate.attribute, *values]
    return (
        SQL(
            "SELECT id, message_id, at, said, payload FROM publication WHERE {} ORDER BY id"
        ).format(SQL(" AND ").join(conditions)),
        parameters,
    )


def stored_value(value: Value) -> Decimal | bytes:
    """A value as the tables hold it, exactly."""
    return value.encode() if isinstance(value, str) else Decimal(value)


def _condition(predicate: Predicate) -> tuple[str, list[Any]]:
    _, operator, operand = predicate
    if isinstance(operand, Variable):
        return (" AND value = trunc(value)" if operand.kind is VariableType.INTEGER else ""), []
    if operator is Operator.PRESENT:
        return "", []
    value = stored_value(operand)
    match operator:
        case Operator.PREFIX:
            assert isinstance(value, bytes)
            start = "substring(value FROM 1 FOR %s)"
            return (
                f" AND {_INDEXED_PREFIX} >= %s AND {start} = %s",
                [value[:INDEXED_CHARACTERS], len(value), value],
            )
        case Operator.POSTFIX:
            assert isinstance(value, bytes)
            end = "substring(value FROM greatest(length(value) - %s + 1, 1))"
            return f" AND {end} = %s", [len(value), value]
        case Operator.CONTAINS:
            return " AND position(%s IN value) > 0", [value]
        case Operator.EQ:
            assert isinstance(value, bytes)
            return f" AND {_INDEXED_PREFIX} = %s AND value = %s", [
                value[:INDEXED_CHARACTERS],
                value,
            ]
    return f" AND value {_COMPARISONS[operator]} %s", [value]


#: What the index holds of a text.
_INDEXED_PREFIX: Final = f"substring(value FROM 1 FOR {INDEXED_CHARACTERS})"


def _is_text(predicate: Predicate) -> bool:
    if isinstance(predicate.operand, Variable):
        return predicate.operand.kind is VariableType.STRING
    return isinstance(predicate.operand, str)
