"""UPDATE and INSERT of the columns a caller has named, and no others.

Names come from models of ours, never from a request; they are quoted as identifiers all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.sql import SQL, Composed, Identifier, Literal, Placeholder
from psycopg.types.json import Jsonb


def insert(table: str, values: Mapping[str, Any], returning: str = "id") -> Composed:
    names = SQL(", ").join(Identifier(name) for name in values)
    given = SQL(", ").join(Placeholder(name) for name in values)
    return SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING {}").format(
        Identifier(table), names, given, Identifier(returning)
    )


def update(table: str, values: Mapping[str, Any], key: int) -> Composed:
    pairs = SQL(", ").join(
        SQL("{} = {}").format(Identifier(name), Placeholder(name)) for name in values
    )
    return SQL("UPDATE {} SET {} WHERE id = {}").format(Identifier(table), pairs, Literal(key))


def sent(values: Mapping[str, Any]) -> dict[str, Any]:
    """As the driver takes them: objects are JSON, tuples are arrays."""
    return {
        name: Jsonb(value)
        if isinstance(value, dict)
        else list(value)
        if isinstance(value, tuple)
        else value
        for name, value in values.items()
    }
