"""Sensors: registered, let in at the broker, told how to behave, looked after.

A configuration is kept here first, then retained at the broker under the sensor's command topic; a
status of the sensor that names its number acknowledges it (a trigger of the database sees to that,
whoever writes the status). What the broker could not be given is given again by `tend`, which also
sees to schedules.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.client import BrokerUnreachable
from penstock.core.errors import NotFound
from penstock.core.logs import get_logger
from penstock.hives.app.broker import SensorBroker
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.cursors import Listed, listed, unpack
from penstock.hives.app.domain.errors import Conflict, Fault, Invalid, NotConfigured
from penstock.hives.app.domain.roles import Permission
from penstock.hives.app.domain.sensors import (
    Command,
    Credentials,
    Modem,
    NetworkConfig,
    ReportConfig,
    Schedule,
    Sensor,
    SensorReport,
)
from penstock.hives.app.domain.tags import unchanged
from penstock.hives.app.repositories.audit import AuditRepository
from penstock.hives.app.repositories.pool import Connection, Pool
from penstock.hives.app.repositories.sensors import SensorRepository
from penstock.hives.app.services.occupancy import owned
from penstock.hives.app.services.reports import Reports
from penstock.hives.sensors.messages import Configuration, Kind, Profile, SensorTopic
from penstock.hives.sensors.messages.topic import command_topic, is_serial

log = get_logger(__name__)

#: Before they are told anything devices behave so.
_DEFAULTS: Final = Configuration()
#: Only one process at a time tends.
_TENDING: Final = 0x68697665


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
            return (await self._mine(connection, caller, sensor, Permission.READ_SENSORS))[0]

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
            held, account = await self._mine(
                connection, caller, sensor, Permission.EDIT_SENSORS, lock=True
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
            held, account = await self._mine(
                connection, caller, sensor, Permission.EDIT_SENSORS, lock=True
            )
            if held.provisioned_at is not None:
                await self._broker.dismiss(_user(held.serial))
            sensors = SensorRepository(connection)
            await sensors.change(sensor, {"state": "retired", "provisioned_at": None})
            await AuditRepository(connection).record(caller, "retire", "sensor", sensor, account)

    async def provision(self, caller: Caller, sensor: int) -> Credentials:
        """A user of the broker that is this sensor; again, it gets another password."""
        async with self._pool.transaction() as connection:
            held, account = await self._mine(
                connection, caller, sensor, Permission.EDIT_SENSORS, lock=True
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
        return Credentials(
            held.serial, self._address, user, password, topics, command_topic(held.serial)
        )

    async def connect_by(self, caller: Caller, sensor: int, network: NetworkConfig) -> Sensor:
        async with self._pool.transaction() as connection:
            held, account = await self._mine(
                connection, caller, sensor, Permission.EDIT_SENSORS, lock=True
            )
            sensors = SensorRepository(connection)
            await sensors.connect_by(sensor, network)
            await AuditRepository(connection).record(caller, "network", "sensor", held.id, account)
            return _there(await sensors.get(sensor, self._clock()), sensor)[0]

    async def fit_modem(self, caller: Caller, sensor: int, modem: Modem) -> Sensor:
        async with self._pool.transaction() as connection:
            held, account = await self._mine(
                connection, caller, sensor, Permission.EDIT_SENSORS, lock=True
            )
            sensors = SensorRepository(connection)
            await sensors.fit_modem(sensor, modem)
            await AuditRepository(connection).record(caller, "modem", "sensor", held.id, account)
            return _there(await sensors.get(sensor, self._clock()), sensor)[0]

    async def configure(self, caller: Caller, sensor: int, wanted: Mapping[str, int]) -> Command:
        """Kept, then told; the sensor acknowledges when it has heard of it."""
        async with self._pool.transaction() as connection:
            held, account = await self._mine(
                connection, caller, sensor, Permission.EDIT_SENSORS, lock=True
            )
            sensors = SensorRepository(connection)
            config = await sensors.configure(sensor, _completed(held, wanted))
            await AuditRepository(connection).record(
                caller, "configure", "sensor", sensor, account, dict(wanted)
            )
        await self._deliver(held, config)
        return (await self.commands(caller, sensor, 1))[0]

    async def commands(self, caller: Caller, sensor: int, limit: int) -> list[Command]:
        """What it was told, the newest first, and whether it has heard."""
        async with self._pool.reading() as connection:
            await self._mine(connection, caller, sensor, Permission.READ_SENSORS)
            return await SensorRepository(connection).commands(sensor, limit)

    async def schedules(self, caller: Caller, sensor: int) -> list[Schedule]:
        async with self._pool.reading() as connection:
            await self._mine(connection, caller, sensor, Permission.READ_SENSORS)
            return await SensorRepository(connection).schedules(sensor)

    async def schedule(
        self, caller: Caller, sensor: int, wanted: Sequence[Mapping[str, Any]]
    ) -> list[Schedule]:
        """All of them at once; when their time has come, the sensor is configured so."""
        async with self._pool.transaction() as connection:
            _, account = await self._mine(
                connection, caller, sensor, Permission.EDIT_SENSORS, lock=True
            )
            sensors = SensorRepository(connection)
            await sensors.set_schedules(sensor, wanted)
            await AuditRepository(connection).record(caller, "schedule", "sensor", sensor, account)
            return await sensors.schedules(sensor)

    async def reports(
        self, caller: Caller, sensor: int, begin: datetime, end: datetime, limit: int
    ) -> list[SensorReport]:
        async with self._pool.reading() as connection:
            held, _ = await self._mine(connection, caller, sensor, Permission.READ_SENSORS)
        return await self._reports.of(held.serial, begin, end, limit)

    async def tend(self) -> int:
        """Schedules whose time has come, and commands the broker does not have. How many were
        delivered; none if another process is at it."""
        delivered = 0
        async with self._pool.reading() as connection:
            row = await (
                await connection.execute("SELECT pg_try_advisory_lock(%s) AS mine", (_TENDING,))
            ).fetchone()
            if row is None or not row["mine"]:
                return 0
            try:
                sensors = SensorRepository(connection)
                for sensor, interval in await sensors.scheduled(self._clock()):
                    held, _ = _there(await sensors.get(sensor, self._clock()), sensor)
                    async with connection.transaction():
                        wanted = _completed(held, {"report_interval_min": interval})
                        await sensors.configure(sensor, wanted)
                for sensor in await self._waiting(connection):
                    held, _ = _there(await sensors.get(sensor, self._clock()), sensor)
                    if held.config is not None and await self._deliver(held, held.config):
                        delivered += 1
            finally:
                await connection.execute("SELECT pg_advisory_unlock(%s)", (_TENDING,))
        return delivered

    async def _waiting(self, connection: Connection) -> list[int]:
        statement = """
            SELECT DISTINCT k.sensor_id FROM sensor_command k
            JOIN sensor s ON s.id = k.sensor_id AND s.report_config_id = k.report_config_id
            WHERE k.sent_at IS NULL AND s.state = 'active' ORDER BY 1 LIMIT 100
        """
        return [row["sensor_id"] async for row in await connection.execute(statement)]

    async def _deliver(self, sensor: Sensor, config: ReportConfig) -> bool:
        """To the broker, which keeps it for the sensor. If it is away, another time."""
        body = _wired(config).encode(Profile.from_json(sensor.profile))
        try:
            await self._broker.retain(command_topic(sensor.serial), body)
        except (BrokerUnreachable, NotConfigured) as error:
            log.warning("configuration waits", sensor=sensor.serial, reason=str(error))
            return False
        async with self._pool.reading() as connection:
            await SensorRepository(connection).sent(config.configuration_id, self._clock())
        return True

    async def _mine(
        self,
        connection: Connection,
        caller: Caller,
        sensor: int,
        permission: Permission,
        *,
        lock: bool = False,
    ) -> tuple[Sensor, int]:
        found = await SensorRepository(connection).get(sensor, self._clock(), lock=lock)
        if found is None or not caller.may(Permission.READ_SENSORS, found[1]):
            raise NotFound(f"there is no sensor {sensor} of yours")
        caller.require(permission, found[1])
        return found


def _user(serial: str) -> str:
    return f"sensor-{serial}"


def _wired(config: ReportConfig) -> Configuration:
    return Configuration(
        config.configuration_id,
        config.threshold_cm,
        config.report_interval_min,
        config.status_interval_min,
        config.event_threshold,
    )


def _completed(sensor: Sensor, wanted: Mapping[str, int]) -> dict[str, int]:
    """What is not said stays as it was told last, or as devices come."""
    held = sensor.config or ReportConfig(
        0,
        _DEFAULTS.threshold_cm,
        _DEFAULTS.report_interval_min,
        _DEFAULTS.status_interval_min,
        _DEFAULTS.event_threshold,
    )
    names = ("threshold_cm", "report_interval_min", "status_interval_min", "event_threshold")
    return {name: wanted.get(name, getattr(held, name)) for name in names}


def _there(found: tuple[Sensor, int] | None, sensor: int) -> tuple[Sensor, int]:
    if found is None:
        raise NotFound(f"there is no sensor {sensor}")
    return found
