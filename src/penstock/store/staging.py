"""Room for the rows of a batch that is on its way: a table per batch and target, unlogged.

The driver makes it (`stage`), tasks fill it (`copy_batches`), the batch's transaction merges it
(`merge`) and throws it away (`discard`). A process that died leaves its tables behind; the next of
the same flow sweeps them (`sweep`) when it starts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from psycopg.sql import SQL, Identifier, Literal

from penstock.store.database import Connection

SCHEMA: Final = "staging"
#: Says which task a row came from, so that a task that is run again replaces its rows.
PART: Final = "_part"
_FLOW: Final = re.compile(r"[a-z][a-z0-9_-]{0,19}")


@dataclass(frozen=True, slots=True)
class Staging:
    """A staging table: small, and at home in any process."""

    name: str
    target: str
    columns: tuple[str, ...]

    @property
    def identifier(self) -> Identifier:
        return Identifier(SCHEMA, self.name)


def stage(
    connection: Connection, flow: str, batch_id: int, target: str, columns: Sequence[str]
) -> Staging:
    """An empty staging table with some columns of the target, of the same types."""
    if not _FLOW.fullmatch(flow):
        raise ValueError(f"{flow!r} is no name of a flow: up to 20 of a-z, 0-9, - and _")
    staging = Staging(f"{_prefix(flow)}{batch_id}.{target}", target, tuple(columns))
    discard(connection, staging)
    connection.execute(
        SQL("CREATE UNLOGGED TABLE {} AS SELECT 0 AS {}, {} FROM {} WITH NO DATA").format(
            staging.identifier,
            Identifier(PART),
            SQL(", ").join(map(Identifier, staging.columns)),
            Identifier(target),
        )
    )
    return staging


def discard(connection: Connection, staging: Staging) -> None:
    connection.execute(SQL("DROP TABLE IF EXISTS {}").format(staging.identifier))


def sweep(connection: Connection, flow: str) -> int:
    """Drop what a process of this flow left behind. How many tables."""
    left = connection.execute(
        SQL(
            "SELECT tablename FROM pg_tables WHERE schemaname = {} AND starts_with(tablename, {})"
        ).format(Literal(SCHEMA), Literal(_prefix(flow)))
    ).fetchall()
    for row in left:
        table = Identifier(SCHEMA, row["tablename"])
        connection.execute(SQL("DROP TABLE IF EXISTS {}").format(table))
    return len(left)


def _prefix(flow: str) -> str:
    return f"{flow}."
