"""What somebody keeps of hives: favourites, where they were lately, what they want to be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from penstock.core.errors import NotFound
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.errors import Conflict, Fault, Invalid
from penstock.hives.app.domain.hives import HiveSummary
from penstock.hives.app.domain.notifications import THRESHOLDS, AlertKind, Definition
from penstock.hives.app.domain.tags import unchanged
from penstock.hives.app.repositories.hives import HiveRepository
from penstock.hives.app.repositories.places import DefinitionRepository, PlaceRepository
from penstock.hives.app.repositories.plans import PlanRepository
from penstock.hives.app.repositories.pool import Connection, Pool


class Favourites:
    def __init__(self, pool: Pool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def favour(self, caller: Caller, hive: int, on: bool) -> None:
        """Again, it changes nothing."""
        async with self._pool.transaction() as connection:
            await _visible(connection, hive, self._clock())
            await PlaceRepository(connection).favour(caller.known, hive, on, self._clock())

    async def visit(self, caller: Caller, hive: int) -> None:
        async with self._pool.transaction() as connection:
            await _visible(connection, hive, self._clock())
            await PlaceRepository(connection).visit(caller.known, hive, self._clock())

    async def favourites(self, caller: Caller) -> list[HiveSummary]:
        """The newest first."""
        async with self._pool.reading() as connection:
            hives = await PlaceRepository(connection).favourites(caller.known)
            return await HiveRepository(connection).summaries(hives, self._clock())

    async def recent(self, caller: Caller, limit: int) -> list[HiveSummary]:
        async with self._pool.reading() as connection:
            hives = await PlaceRepository(connection).recent(caller.known, limit)
            return await HiveRepository(connection).summaries(hives, self._clock())


class Notifications:
    """Settings of what to be told; as many as one's plan includes."""

    def __init__(self, pool: Pool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def of(self, caller: Caller) -> list[Definition]:
        async with self._pool.reading() as connection:
            return await DefinitionRepository(connection).of_user(caller.known)

    async def get(self, caller: Caller, number: int) -> Definition:
        async with self._pool.reading() as connection:
            return _there(await DefinitionRepository(connection).get(caller.known, number), number)

    async def define(self, caller: Caller, values: Mapping[str, Any]) -> Definition:
        _check(values)
        now = self._clock()
        async with self._pool.transaction() as connection:
            # One at a time for each user, or the limit could be passed.
            await connection.execute(
                "SELECT FROM app_user WHERE id = %s FOR UPDATE", (caller.known,)
            )
            definitions = DefinitionRepository(connection)
            most = await PlanRepository(connection).limit_of_user(
                caller.known, "alerts", "alerts", now
            )
            if most is not None and len(await definitions.of_user(caller.known)) >= most:
                raise Conflict(f"your plan includes {most} alerts")
            if values.get("hive_id") is not None:
                await _visible(connection, values["hive_id"], now)
            number = await definitions.add(caller.known, values)
            return _there(await definitions.get(caller.known, number), number)

    async def edit(
        self, caller: Caller, number: int, values: Mapping[str, Any], seen: str | None
    ) -> Definition:
        async with self._pool.transaction() as connection:
            definitions = DefinitionRepository(connection)
            held = _there(await definitions.get(caller.known, number, lock=True), number)
            unchanged(held, seen)
            names = ("kind", "hive_id", "threshold", "unit", "hysteresis", "quiet_from", "quiet_to")
            _check({name: values.get(name, getattr(held, name)) for name in names})
            if values.get("hive_id") is not None:
                await _visible(connection, values["hive_id"], self._clock())
            await definitions.change(number, values)
            return _there(await definitions.get(caller.known, number), number)

    async def remove(self, caller: Caller, number: int) -> None:
        async with self._pool.transaction() as connection:
            if not await DefinitionRepository(connection).remove(caller.known, number):
                raise NotFound(f"you have no notification setting {number}")


def _check(values: Mapping[str, Any]) -> None:
    faults = []
    if AlertKind(values["kind"]) in THRESHOLDS:
        faults += [
            Fault(name, f"is needed for {values['kind']}")
            for name in ("hive_id", "threshold", "unit")
            if values.get(name) is None
        ]
    elif values.get("threshold") is not None or values.get("unit") is not None:
        faults.append(Fault("threshold", f"has no meaning for {values['kind']}"))
    if values.get("unit") == "percent" and (values.get("threshold") or 0) > 1000:
        faults.append(Fault("threshold", "is at most 1000 percent"))
    if (values.get("quiet_from") is None) != (values.get("quiet_to") is None):
        faults.append(Fault("quiet_from", "comes with quiet_to, or neither does"))
    if faults:
        raise Invalid("this could never be told", faults)


async def _visible(connection: Connection, hive: int, now: datetime) -> None:
    if not await HiveRepository(connection).summaries([hive], now):
        raise NotFound(f"there is no hive {hive}")


def _there(found: Definition | None, number: int) -> Definition:
    if found is None:
        raise NotFound(f"you have no notification setting {number}")
    return found
