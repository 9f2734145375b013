"""What sensors are told, and whether they have heard.

A configuration is kept here first, then retained at the broker under the sensor's command topic; a
status of the sensor that names its number acknowledges it (a trigger of the database sees to that,
whoever writes the status). What the broker could not be given is given again by `tend`, which also
sees to schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from penstock.client import BrokerUnreachable
from penstock.core.logs import get_logger
from penstock.hives.app.broker import SensorBroker
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.errors import NotConfigured
from penstock.hives.app.domain.roles import Permission
from penstock.hives.app.domain.sensors import Command, ReportConfig, Schedule, Sensor
from penstock.hives.app.repositories.audit import AuditRepository
from penstock.hives.app.repositories.pool import Connection, Pool
from penstock.hives.app.repositories.sensors import SensorRepository
from penstock.hives.app.services.sensors import own_sensor
from penstock.hives.sensors.messages import Configuration, Profile
from penstock.hives.sensors.messages.topic import command_topic

log = get_logger(__name__)

#: Before they are told anything devices behave so.
_DEFAULTS: Final = Configuration()
#: Only one process at a time tends.
_TENDING: Final = 0x68697665


class Commands:
    def __init__(self, pool: Pool, broker: SensorBroker, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._broker = broker
        self._clock = clock

    async def configure(self, caller: Caller, sensor: int, wanted: Mapping[str, int]) -> Command:
        """Kept, then told; the sensor acknowledges when it has heard of it."""
        async with self._pool.transaction() as connection:
            held, account = await own_sensor(
                connection, caller, sensor, self._clock(), Permission.EDIT_SENSORS, lock=True
            )
            sensors = SensorRepository(connection)
            config = await sensors.configure(sensor, _completed(held, wanted))
            await AuditRepository(connection).record(
                caller, "configure", "sensor", sensor, account, dict(wanted)
            )
        await self._pool.afterwards(lambda: self._deliver(held, config))
        return (await self.of(caller, sensor, 1))[0]

    async def of(self, caller: Caller, sensor: int, limit: int) -> list[Command]:
        """What it was told, the newest first, and whether it has heard."""
        async with self._pool.reading() as connection:
            await own_sensor(connection, caller, sensor, self._clock(), Permission.READ_SENSORS)
            return await SensorRepository(connection).commands(sensor, limit)

    async def schedules(self, caller: Caller, sensor: int) -> list[Schedule]:
        async with self._pool.reading() as connection:
            await own_sensor(connection, caller, sensor, self._clock(), Permission.READ_SENSORS)
            return await SensorRepository(connection).schedules(sensor)

    async def schedule(
        self, caller: Caller, sensor: int, wanted: Sequence[Mapping[str, Any]]
    ) -> list[Schedule]:
        """All of them at once; when their time has come, the sensor is configured so."""
        async with self._pool.transaction() as connection:
            _, account = await own_sensor(
                connection, caller, sensor, self._clock(), Permission.EDIT_SENSORS, lock=True
            )
            sensors = SensorRepository(connection)
            await sensors.set_schedules(sensor, wanted)
            await AuditRepository(connection).record(caller, "schedule", "sensor", sensor, account)
            return await sensors.schedules(sensor)

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
                    held = await _known(sensors, sensor, self._clock())
                    async with connection.transaction():
                        wanted = _completed(held, {"report_interval_min": interval})
                        await sensors.configure(sensor, wanted)
                for sensor in await self._waiting(connection):
                    held = await _known(sensors, sensor, self._clock())
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


async def _known(sensors: SensorRepository, sensor: int, now: datetime) -> Sensor:
    found = await sensors.get(sensor, now)
    assert found is not None, "sensors are retired, never deleted"
    return found[0]
