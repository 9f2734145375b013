"""Sensors: registered, let in at the broker, looked after, retired.

What they are told is in `commands.py`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from penstock.core.errors import NotFound
from penstock.core.logs import get_logger
from penstock.hives.app.broker import SensorBroker
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.cursors import Listed, listed, unpack
from penstock.hives.app.domain.errors import Conflict, Fault, Invalid
from penstock.hives.app.domain.roles import Permission
from penstock.hives.app.domain.sensors import (
    Modem,
    NetworkConfig,
    Sensor,
    SensorAccess,
    SensorReport,
)
from penstock.hives.app.domain.tags import unchanged
from penstock.hives.app.repositories.audit import AuditRepository
from penstock.hives.app.repositories.pool import Connection, Pool
from penstock.hives.app.repositories.sensors import SensorRepository
from penstock.hives.app.services.occupancy import owned
from penstock.hives.app.services.reports import Reports
from penstock.hives.sensors.messages import Kind, SensorTopic
from penstock.hives.sensors.messages.topic import command_topic, is_serial

log = get_logger(__name__)


class Sensors:
    def __init__(
        self,
        pool: Pool,
        broker: SensorBroker,
        reports: Reports,
        address: str,
        clock: Callable[[], datetime],
    ) -> None:
        """`address` is where sensors connect to the broker."""
        self._pool = pool
        self._broker = broker
        self._reports = reports
        self._address = address
        self._clock = clock

    async def of_hive(self, caller: Caller, hive: int) -> list[Sensor]:
        async with self._pool.reading() as connection:
            await owned(connection, caller, hive, Permission.READ_SENSORS)
            return await SensorRepository(connection).of_hive(hive, self._clock())

    async def of_account(
        self, caller: Caller, account: int, cursor: str | None, limit: int
    ) -> Listed[Sensor]:
        caller.require(Permission.READ_SENSORS, account)
        after = unpack(cursor, int) or [0]
        async with self._pool.reading() as connection:
            sensors = SensorRepository(connection)
            found = await sensors.of_account(account, self._clock(), after[0], limit + 1)
        return listed(found, limit, lambda sensor: [sensor.id])

    async def get(self, caller: Caller, sensor: int) -> Sensor:
        async with self._pool.reading() as connection:
            return (
                await own_sensor(connection, caller, sensor, self._clock(), Permission.READ_SENSORS)
            )[0]

    async def register(self, caller: Caller, hive: int, values: Mapping[str, Any]) -> Sensor:
        if not is_serial(values["serial"]):
            raise Invalid("no such serial", [Fault("serial", "has letters, digits, _ and - only")])
        async with self._pool.transaction() as connection:
            account = await owned(connection, caller, hive, Permission.EDIT_SENSORS)
            sensors = SensorRepository(connection)
            number = await sensors.add({**values, "hive_id": hive})
            await AuditRepository(connection).record(caller, "register", "sensor", number, account)
            return _there(await sensors.get(number, self._clock()), number)[0]

    async def edit(
        self, caller: Caller, sensor: int, values: Mapping[str, Any], seen: str | None
    ) -> Sensor:
        async with self._pool.transaction() as connection:
            held, account = await own_sensor(
                connection, caller, sensor, self._clock(), Permission.EDIT_SENSORS, lock=True
            )
            unchanged(held, seen)
            if "hive_id" in values:
                await owned(connection, caller, values["hive_id"], Permission.EDIT_SENSORS)
            sensors = SensorRepository(connection)
            await sensors.change(sensor, values)
            await AuditRepository(connection).record(
                caller, "edit", "sensor", sensor, account, {"fields": sorted(values)}
            )
            return _there(await sensors.get(sensor, self._clock()), sensor)[0]

    async def retire(self, caller: Caller, sensor: int) -> None:
        """It no longer counts, nor may it sign in; what it counted stays."""
        async with self._pool.transaction() as connection:
            held, account = await own_sensor(
                connection, caller, sensor, self._clock(), Permission.EDIT_SENSORS, lock=True
            )
            if held.provisioned_at is not None:
                await self._broker.dismiss(_user(held.serial))
            sensors = SensorRepository(connection)
            await sensors.change(sensor, {"state": "retired", "provisioned_at": None})
            await AuditRepository(connection).record(caller, "retire", "sensor", sensor, account)

    async def provision(self, caller: Caller, sensor: int) -> SensorAccess:
        """A user of the broker that is this sensor; again, it gets another password."""
        async with self._pool.transaction() as connection:
            held, account = await own_sensor(
                connection, caller, sensor, self._clock(), Permission.EDIT_SENSORS, lock=True
            )
            if held.state == "retired":
                raise Conflict(f"sensor {sensor} is retired")
            user, password = _user(held.serial), secrets.token_urlsafe(24)
            await self._broker.admit(held.serial, user, password)
            sensors = SensorRepository(connection)
            parts = urlsplit(self._address)
            tls = parts.scheme in ("mqtts", "wss")
            network = NetworkConfig(
                apn=held.network.apn if held.network else "",
                broker_host=parts.hostname or "localhost",
                port=parts.port or (8883 if tls else 1883),
                tls=tls,
                user_ref=user,
            )
            await sensors.connect_by(sensor, network)
            await sensors.change(sensor, {"provisioned_at": self._clock()})
            await AuditRepository(connection).record(caller, "provision", "sensor", sensor, account)
        topics = tuple(SensorTopic(held.serial, kind).topic for kind in Kind)
        return SensorAccess(
            held.serial, self._address, user, password, topics, command_topic(held.serial)
        )

    async def connect_by(self, caller: Caller, sensor: int, network: NetworkConfig) -> Sensor:
        async with self._pool.transaction() as connection:
            held, account = await own_sensor(
                connection, caller, sensor, self._clock(), Permission.EDIT_SENSORS, lock=True
            )
            sensors = SensorRepository(connection)
            await sensors.connect_by(sensor, network)
            await AuditRepository(connection).record(caller, "network", "sensor", held.id, account)
            return _there(await sensors.get(sensor, self._clock()), sensor)[0]

    async def fit_modem(self, caller: Caller, sensor: int, modem: Modem) -> Sensor:
        async with self._pool.transaction() as connection:
            held, account = await own_sensor(
                connection, caller, sensor, self._clock(), Permission.EDIT_SENSORS, lock=True
            )
            sensors = SensorRepository(connection)
            await sensors.fit_modem(sensor, modem)
            await AuditRepository(connection).record(caller, "modem", "sensor", held.id, account)
            return _there(await sensors.get(sensor, self._clock()), sensor)[0]

    async def reports(
        self, caller: Caller, sensor: int, begin: datetime, end: datetime, limit: int
    ) -> list[SensorReport]:
        async with self._pool.reading() as connection:
            held, _ = await own_sensor(
                connection, caller, sensor, self._clock(), Permission.READ_SENSORS
            )
        return await self._reports.of(held.serial, begin, end, limit)


def _user(serial: str) -> str:
    return f"sensor-{serial}"


async def own_sensor(
    connection: Connection,
    caller: Caller,
    sensor: int,
    now: datetime,
    permission: Permission,
    *,
    lock: bool = False,
) -> tuple[Sensor, int]:
    """A sensor and its account, in which the caller has the permission; others' are not there."""
    found = await SensorRepository(connection).get(sensor, now, lock=lock)
    if found is None or not caller.may(Permission.READ_SENSORS, found[1]):
        raise NotFound(f"there is no sensor {sensor} of yours")
    caller.require(permission, found[1])
    return found


def _there(found: tuple[Sensor, int] | None, sensor: int) -> tuple[Sensor, int]:
    if found is None:
        raise NotFound(f"there is no sensor {sensor}")
    return found
