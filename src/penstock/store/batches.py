"""Which batches are in the tables already.

A batch's mark is made in the transaction that applies it, so either both are there or neither: a
process killed between the database's commit and Spark's finds the mark and skips the batch.
"""

from __future__ import annotations

from typing import Final

from penstock.store.database import Connection

#: Spark asks again for the last batch only; the rest are kept for people to look at.
KEPT: Final = 1000


class Batches:
    """The marks, as one transaction sees and makes them."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def applied(self, flow: str, batch_id: int) -> bool:
        found = self._connection.execute(
            "SELECT FROM pipeline_batch WHERE flow = %s AND batch_id = %s", (flow, batch_id)
        )
        return found.rowcount > 0

    def mark(self, flow: str, batch_id: int, rows: int) -> None:
        """Say that this transaction applies the batch. Another that does so fails, or waits."""
        self._connection.execute(
            "INSERT INTO pipeline_batch (flow, batch_id, rows) VALUES (%s, %s, %s)",
            (flow, batch_id, rows),
        )
        self._connection.execute(
            "DELETE FROM pipeline_batch WHERE flow = %s AND batch_id <= %s",
            (flow, batch_id - KEPT),
        )

    def last(self, flow: str) -> int | None:
        row = self._connection.execute(
            "SELECT max(batch_id) AS batch_id FROM pipeline_batch WHERE flow = %s", (flow,)
        ).fetchone()
        return row["batch_id"] if row else None
