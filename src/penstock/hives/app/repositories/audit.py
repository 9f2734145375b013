"""Table `audit_log`: who changed what that others rely on, in the transaction that changed it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from psycopg.types.json import Jsonb
from pydantic_core import to_jsonable_python

from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.people import AuditEntry
from penstock.hives.app.repositories.pool import Connection

_RECORD: Final = """
    INSERT INTO audit_log (user_id, action, entity, entity_id, account_id, details)
    VALUES (%(user)s, %(action)s, %(entity)s, %(id)s, %(account)s, %(details)s)
"""
_READ: Final = """
    SELECT id, at, user_id, action, entity, entity_id, account_id, details FROM audit_log
    WHERE (%(account)s::bigint IS NULL OR account_id = %(account)s)
      AND (%(before)s::bigint IS NULL OR id < %(before)s)
    ORDER BY id DESC LIMIT %(limit)s
"""


class AuditRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def record(
        self,
        caller: Caller,
        action: str,
        entity: str,
        number: int | None = None,
        account: int | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        given = {
            "user": caller.id,
            "action": action,
            "entity": entity,
            "id": number,
            "account": account,
            "details": Jsonb(to_jsonable_python(details or {})),
        }
        await self._connection.execute(_RECORD, given)

    async def entries(
        self, account: int | None, before: int | None, limit: int
    ) -> list[AuditEntry]:
        given = {"account": account, "before": before, "limit": limit}
        return [AuditEntry(**row) async for row in await self._connection.execute(_READ, given)]
