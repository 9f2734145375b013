"""The archive of publications in PostgreSQL.

A batch of the stream and the next offset are one transaction, so a killed historian continues where
it was, and each publication is inserted once. Values are indexed by attribute. A query becomes SQL
(`select_statement`): each predicate is a condition, each value a bound parameter. Numbers are
stored exactly, as `numeric`; texts as UTF-8 bytes, which sort by code point and may contain NUL. A
comparison with a variable tests presence and type in SQL; `satisfies` decides the rest.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
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

_FETCH_ROWS: Final = 1000
#: PostgreSQL's text cannot contain it.
_NUL: Final = "\0"
#: Length of the indexed beginning of a text; an index cannot hold long ones.
INDEXED_CHARACTERS: Final = 200
_INDEXED_PREFIX: Final = f"substring(value FROM 1 FOR {INDEXED_CHARACTERS})"

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


class PublicationArchive:
    """Any number of threads may share it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def next_offset(self, stream: str) -> int:
        found = self._database.rows(
            "SELECT next_offset FROM history_progress WHERE stream = %s", (stream,)
        )
        return int(found[0]["next_offset"]) if found else 0

    def insert(
        self, stream: str, batch: Sequence[ArchivedPublication], next_offset: int
    ) -> list[ArchivedPublication]:
        """Returns those with a NUL in the name of the class or of an attribute, which cannot be
        stored."""
        with self._database.transaction() as connection:
            _insert(connection, [archived for archived in batch if _is_storable(archived)])
            connection.execute(
                "INSERT INTO history_progress VALUES (%s, %s) ON CONFLICT (stream) DO UPDATE "
                "SET next_offset = greatest(history_progress.next_offset, excluded.next_offset)",
                (stream, next_offset),
            )
        return [archived for archived in batch if not _is_storable(archived)]

    def delete_older(self, age: timedelta) -> int:
        return self._database.execute("DELETE FROM publication WHERE at < now() - %s", (age,))

    def add_request(self, spec: str, class_name: str) -> bool:
        """False if it exists."""
        return bool(
            self._database.execute(
                "INSERT INTO history_request (content_spec, class) VALUES (%s, %s) "
                "ON CONFLICT DO NOTHING",
                (spec, class_name),
            )
        )

    def remove_request(self, spec: str) -> bool:
        """Its stored publications stay."""
        return bool(
            self._database.execute("DELETE FROM history_request WHERE content_spec = %s", (spec,))
        )

    def requests(self) -> list[str]:
        rows = self._database.rows("SELECT content_spec FROM history_request ORDER BY requested_at")
        return [row["content_spec"] for row in rows]

    def attributes(self) -> list[tuple[str, str, bool]]:
        """All pairs of class and attribute, and whether the values are texts."""
        rows = self._database.rows("SELECT class, attribute, is_text FROM history_attribute")
        return [(row["class"], row["attribute"], row["is_text"]) for row in rows]

    def query(self, query: HistoryQuery) -> Generator[ArchivedPublication]:
        """In the order of the stream."""
        statement, parameters = select_statement(query)
        with (
            self._database.transaction() as connection,
            connection.cursor(name="answer") as cursor,
        ):
            cursor.itersize = _FETCH_ROWS
            cursor.execute(statement, parameters)
            for row in cursor:
                text = bytes(row["text"]).decode()
                publication = replace(parse_publication(text), time=row["at"])
                if satisfies(publication, query.wanted):
                    payload = bytes(row["payload"])
                    yield ArchivedPublication(
                        row["id"], row["message_id"], row["at"], publication, payload
                    )

    def is_answered(self, subscription: str) -> bool:
        """Whether all results of the query in this subscription were published."""
        statement = "SELECT FROM history_answered WHERE subscription = %s"
        return bool(self._database.rows(statement, (subscription,)))

    def mark_answered(self, subscription: str) -> None:
        self._database.execute(
            "INSERT INTO history_answered (subscription) VALUES (%s) ON CONFLICT DO NOTHING",
            (subscription,),
        )

    def unmark_answered(self, subscription: str) -> None:
        """The subscription was withdrawn, so the same query may come again."""
        self._database.execute(
            "DELETE FROM history_answered WHERE subscription = %s", (subscription,)
        )

    def time_span(self) -> tuple[int, datetime | None, datetime | None]:
        """The number of publications, and the first and last time."""
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
        name, message_id = archived.publication.class_name, archived.id.replace(_NUL, "")
        text, payload = archived.text.encode(), archived.payload
        rows.append((archived.offset, message_id, name, archived.time, text, payload))
        for attribute, value in archived.values.items():
            is_text = isinstance(value, str)
            attributes.add((name, attribute, is_text))
            (texts if is_text else numbers).append(
                (archived.offset, attribute, stored_value(value))
            )
    # The offset is the key, so a repeated batch conflicts as a whole.
    for statement, values in (
        ("INSERT INTO publication VALUES (%s, %s, %s, %s, %s, %s)", rows),
        ("INSERT INTO publication_number VALUES (%s, %s, %s)", numbers),
        ("INSERT INTO publication_text VALUES (%s, %s, %s)", texts),
        ("INSERT INTO history_attribute VALUES (%s, %s, %s)", sorted(attributes)),
    ):
        if values:
            with connection.cursor() as cursor:
                cursor.executemany(f"{statement} ON CONFLICT DO NOTHING", values)


def select_statement(query: HistoryQuery) -> tuple[Composed, list[Any]]:
    """Selects a superset of the results, in the order of the stream."""
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
            "SELECT id, message_id, at, text, payload FROM publication WHERE {} ORDER BY id"
        ).format(SQL(" AND ").join(conditions)),
        parameters,
    )


def stored_value(value: Value) -> Decimal | bytes:
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


def _is_text(predicate: Predicate) -> bool:
    if isinstance(predicate.operand, Variable):
        return predicate.operand.kind is VariableType.STRING
    return isinstance(predicate.operand, str)
